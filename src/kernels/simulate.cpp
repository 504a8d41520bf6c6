// Straight-through rounding as autograd functions; without a gradient to follow, the plain values.
#include "kernels/simulate.h"

#include "kernels/cpu/simulate.h"
#include "kernels/gpu/quantise.h"
#include "kernels/gpu_dispatch.h"
#include "kernels/reference/simulate.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using base::Code;
using base::fail;
using tensor::BlockFormat;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool needs_gradient(const Tensor& values) { return at::GradMode::is_enabled() && values.requires_grad(); }

Tensor rounded_values(const Tensor& values) {
  const Tensor input = values.contiguous();
  Tensor result = tensor::empty(input.sizes());
  cpu::round_bf16(input.const_data_ptr<float>(), result.mutable_data_ptr<float>(), input.numel());
  return result;
}

Tensor simulated_values(const Tensor& values, int64_t group, BlockFormat format) {
  const Tensor input = values.contiguous();
  const bool on_gpu = has_gpu_kernel(input);
  Tensor result = on_gpu ? at::empty_like(input) : tensor::empty(input.sizes());
  cpu::GroupedRows rows;
  rows.from = input.const_data_ptr<float>();
  rows.to = result.mutable_data_ptr<float>();
  rows.columns = input.size(-1);
  rows.rows = input.numel() / std::max<int64_t>(rows.columns, 1);
  rows.group = group;
  if (on_gpu) {
    const OnDevice device(input);
    gpu::simulate_groups(rows, format, device.queue());
  } else {
    cpu::simulate_groups(rows, format);
  }
  return result;
}

struct RoundBf16 : torch::autograd::Function<RoundBf16> {
  static Tensor forward(AutogradContext*, const Tensor& values) { return rounded_values(values); }
  static variable_list backward(AutogradContext*, variable_list gradients) { return gradients; }
};

struct SimulateGroups : torch::autograd::Function<SimulateGroups> {
  static Tensor forward(AutogradContext*, const Tensor& values, int64_t group, BlockFormat format) {
    return simulated_values(values, group, format);
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0], {}, {}}; }
};

}  // namespace

Tensor round_bf16(const Tensor& values) {
  if (!has_cpu_kernel(values)) return reference::round_bf16(values);
  return needs_gradient(values) ? RoundBf16::apply(values) : rounded_values(values);
}

Tensor simulate_groups(const Tensor& values, int64_t group, BlockFormat format) {
  CHECK(group > 0 && values.dim() > 0);
  if (!has_cpu_kernel(values) && !has_gpu_kernel(values)) return reference::simulate_groups(values, group, format);
  return needs_gradient(values) ? SimulateGroups::apply(values, group, format)
                                : simulated_values(values, group, format);
}

Tensor hadamard_e2m1(const Tensor& values) {
  CHECK(values.dim() > 0);
  const int64_t dim = values.size(-1);
  if (dim < 1 || (dim & (dim - 1)) != 0) {
    fail(Code::invalid_argument, "a Hadamard transform needs a power of two, not {} values (index_head_dim)", dim);
  }
  const at::NoGradGuard no_grad;
  const Tensor input = values.contiguous();
  if (!has_cpu_kernel(input)) return reference::hadamard_e2m1(input);
  Tensor result = tensor::empty(input.sizes());
  cpu::hadamard_e2m1(input.const_data_ptr<float>(), result.mutable_data_ptr<float>(), input.numel() / dim, dim);
  return result;
}

}  // namespace kernels
