// The definitions of kernels/simulate.h by tensor operations: any device, f32 and f64 (through f32), straight-through.
#pragma once
#include <cstdint>

#include "kernels/rounding.h"
#include "tensor/formats/block_scale.h"
#include "tensor/tensor.h"

namespace kernels::reference {

using tensor::Tensor;

Tensor round_bf16(const Tensor& values);
Tensor rounded(const Tensor& values, Rounding rounding);
Tensor simulate_groups(const Tensor& values, int64_t group, tensor::BlockFormat format);

// By the product with the Hadamard matrix.
Tensor hadamard_e2m1(const Tensor& values);

}  // namespace kernels::reference
