// Straight-through rounding as autograd functions around plain tensor operations.
#include "kernels/reference/simulate.h"
#include "tensor/autograd.h"

#include <cmath>

namespace kernels::reference {
namespace {

using tensor::BlockFormat;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RoundBf16 : torch::autograd::Function<RoundBf16> {
  static Tensor forward(AutogradContext*, const Tensor& values) {
    return values.to(at::kBFloat16).to(values.scalar_type());
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return gradients; }
};

struct SimulateGroups : torch::autograd::Function<SimulateGroups> {
  static Tensor forward(AutogradContext*, const Tensor& values, int64_t group, BlockFormat format) {
    return tensor::simulate_groups(values, group, format);
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0], {}, {}}; }
};

}  // namespace

Tensor round_bf16(const Tensor& values) { return RoundBf16::apply(values); }

Tensor rounded(const Tensor& values, Rounding rounding) {
  return rounding == Rounding::bf16 ? round_bf16(values) : values;
}

Tensor simulate_groups(const Tensor& values, int64_t group, BlockFormat format) {
  CHECK(group > 0 && values.dim() > 0);
  return SimulateGroups::apply(values, group, format);
}

Tensor hadamard_e2m1(const Tensor& values) {
  const at::NoGradGuard no_grad;
  const int64_t dim = values.size(-1);
  Tensor hadamard = at::ones({1, 1}, values.options());
  while (hadamard.size(0) < dim) {
    hadamard = at::cat({at::cat({hadamard, hadamard}, 1), at::cat({hadamard, -hadamard}, 1)});
  }
  const Tensor mixed = at::matmul(values, hadamard) * (1.0 / std::sqrt(static_cast<double>(dim)));
  return simulate_groups(round_bf16(mixed), 32, BlockFormat::e2m1);
}

}  // namespace kernels::reference
