// Rows of a table: out[t] = table[ids[t]]. The gradient of the table is summed by ascending t, whatever the number of
// threads.
#pragma once
#include "tensor/tensor.h"

namespace kernels {

using tensor::Tensor;

// table [V, D] f32, ids int64 [T], repeat M >= 1 -> [T, M, D], each row M times (the streams of hyper-connections).
// Differentiable in the table.
Tensor embed(const Tensor& table_VD, const Tensor& ids_T, int64_t repeat);

}  // namespace kernels
