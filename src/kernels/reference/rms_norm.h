// The definition of kernels/rms_norm.h by tensor operations: any device, f32 and f64, differentiable.
#pragma once
#include "kernels/rounding.h"
#include "tensor/tensor.h"

namespace kernels::reference {

using tensor::Tensor;

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, Rounding rounding);

}  // namespace kernels::reference
