// Weights and activations to e4m3 and e2m1 codes with block scales, and back: tensor/formats/block_scale.h has the
// rules and the definition, a GPU has a kernel for e4m3. Equal to the bit on every device, but for the codes of a block
// with a NaN or an infinity, which is NaN when it is read back. Without gradient.
#pragma once
#include "tensor/formats/block_scale.h"

namespace kernels {

using tensor::Tensor;

tensor::Quantised quantise_blocks(const Tensor& weight, tensor::BlockFormat format);
Tensor dequantise_blocks(const tensor::Quantised& quantised);
tensor::Quantised quantise_groups(const Tensor& values, int64_t group, tensor::BlockFormat format);

}  // namespace kernels
