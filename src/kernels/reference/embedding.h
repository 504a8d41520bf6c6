// The definition of kernels/embedding.h by tensor operations: any device, f32 and f64, differentiable.
#pragma once
#include "tensor/tensor.h"

namespace kernels::reference {

using tensor::Tensor;

Tensor embed(const Tensor& table_VD, const Tensor& ids_T, int64_t repeat);

}  // namespace kernels::reference
