// Rounding that training passes through: forward rounds, backward hands the gradient on unchanged (straight-through;
// spec 6.6). f32 in, f32 out, contiguous; fast on a CPU, tensor operations elsewhere, equal to the bit.
#pragma once
#include <cstdint>

#include "tensor/formats/block_scale.h"
#include "tensor/tensor.h"

namespace tensor {

// The nearest bf16 value (ties to even), still as f32. NaN stays NaN.
Tensor round_bf16(const Tensor& values);

// simulate_groups with the identity as gradient.
Tensor simulate_groups_st(const Tensor& values, int64_t group, BlockFormat format);

}  // namespace tensor
