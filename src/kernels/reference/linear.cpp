// Products as torch computes them.
#include "kernels/reference/linear.h"

namespace kernels::reference {
namespace {

Tensor rounded(const Tensor& values, Rounding rounding) {
  if (rounding == Rounding::none) return values;
  const Tensor detached = values.detach();
  const Tensor bf16 = detached.to(at::kBFloat16).to(values.scalar_type());
  if (!values.requires_grad()) return bf16;
  // The difference is exact, and so is the sum.
  return values + at::where(at::isfinite(detached), bf16 - detached, 0);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight_NK, Rounding rounding) {
  return rounded(at::matmul(x, weight_NK.t()), rounding);
}

Tensor grouped_linear(const Tensor& x, const Tensor& weight_GNK, Rounding rounding) {
  const int64_t groups = weight_GNK.size(0);
  const Tensor x_GTK = x.view({x.size(0), groups, weight_GNK.size(2)}).transpose(0, 1);
  const Tensor y_GTN = at::matmul(x_GTK, weight_GNK.transpose(1, 2));
  return rounded(y_GTN.transpose(0, 1).reshape({x.size(0), groups * weight_GNK.size(1)}), rounding);
}

}  // namespace kernels::reference
