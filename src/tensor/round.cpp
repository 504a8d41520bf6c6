// Straight-through rounding as autograd functions; without a gradient to follow, the plain value.
#include "tensor/round.h"

#include "tensor/formats/simulate_cpu.h"

namespace tensor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rounded(const Tensor& values) {
  CHECK(values.scalar_type() == at::kFloat, "round_bf16 is for f32");
  if (!values.is_cpu()) return values.contiguous().to(at::kBFloat16).to(at::kFloat);
  const Tensor input = values.contiguous();
  Tensor result = at::empty_like(input);
  round_bf16_cpu(input.const_data_ptr<float>(), result.mutable_data_ptr<float>(), input.numel());
  return result;
}

struct RoundBf16 : torch::autograd::Function<RoundBf16> {
  static Tensor forward(AutogradContext*, const Tensor& values) { return rounded(values); }
  static variable_list backward(AutogradContext*, variable_list gradients) { return gradients; }
};

struct SimulateGroups : torch::autograd::Function<SimulateGroups> {
  static Tensor forward(AutogradContext*, const Tensor& values, int64_t group, BlockFormat format) {
    return simulate_groups(values, group, format);
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0], {}, {}}; }
};

bool needs_gradient(const Tensor& values) { return at::GradMode::is_enabled() && values.requires_grad(); }

}  // namespace

Tensor round_bf16(const Tensor& values) {
  if (needs_gradient(values)) return RoundBf16::apply(values);
  const at::NoGradGuard no_grad;
  return rounded(values);
}

Tensor simulate_groups_st(const Tensor& values, int64_t group, BlockFormat format) {
  if (needs_gradient(values)) return SimulateGroups::apply(values, group, format);
  return simulate_groups(values, group, format);
}

}  // namespace tensor
