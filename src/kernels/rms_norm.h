// y = x / sqrt(mean(x^2) + eps) * w over the last dim, f32 inside, one rounding at the end (spec 2).
//
// Gradient: u = x * rinv, g = dy * w:  dx = rinv * (g - u * mean(g * u)),  dw = sum over rows of dy * u, rows summed in
// blocks of 16, blocks in ascending order, whatever the number of threads. Rounding is straight-through.
#pragma once
#include "kernels/rounding.h"
#include "tensor/tensor.h"

namespace kernels {

using tensor::Tensor;

// x [.., K], weight [K] or undefined (none).
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, Rounding rounding);

}  // namespace kernels
