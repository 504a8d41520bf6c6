// The norm as three tensor operations.
#include "kernels/reference/rms_norm.h"

#include "kernels/reference/simulate.h"

namespace kernels::reference {

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, Rounding rounding) {
  const Tensor u = x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + eps);
  return rounded(weight.defined() ? u * weight : u, rounding);
}

}  // namespace kernels::reference
