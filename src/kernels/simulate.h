// Rounding that training passes through: forward rounds, backward hands the gradient on unchanged (straight-through;
// spec 6.6). f32 in, f32 out, contiguous; any device, equal to the bit.
#pragma once
#include <cstdint>

#include "tensor/formats/block_scale.h"
#include "tensor/tensor.h"

namespace kernels {

using tensor::Tensor;

// The nearest bf16 value (ties to even), still as f32. NaN stays NaN.
Tensor round_bf16(const Tensor& values);

// tensor::simulate_groups with the identity as gradient.
Tensor simulate_groups(const Tensor& values, int64_t group, tensor::BlockFormat format);

// Indexer q and k: Hadamard transform over the last dim (a power of two), times dim^-0.5, rounded to bf16, then e2m1 in
// groups of 32 (spec 4.6, decisions 18). Without gradient. Error{invalid_argument} for another dim.
Tensor hadamard_e2m1(const Tensor& values);

}  // namespace kernels
