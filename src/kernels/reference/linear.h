// The definition of kernels/linear.h by tensor operations: any device, f32 and f64, differentiable. The order of the
// sums is the device's.
#pragma once
#include "kernels/rounding.h"
#include "tensor/tensor.h"

namespace kernels::reference {

using tensor::Tensor;

// x [.., K], weight [N, K] -> [.., N]. Rounding passes the gradient straight through.
Tensor linear(const Tensor& x, const Tensor& weight_NK, Rounding rounding);

// x [T, G * K], weight [G, N, K] -> [T, G * N].
Tensor grouped_linear(const Tensor& x, const Tensor& weight_GNK, Rounding rounding);

}  // namespace kernels::reference
