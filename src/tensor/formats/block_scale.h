// Numbers stored as small codes with one scale factor per block: the weights of the published checkpoints, the engine's
// weights and activations (spec 6.2 to 6.6, decisions 2, 3, 19).
//
// Weights [..., R, C]: e4m3 in blocks of 128 x 128, e2m1 in blocks of 1 x 32. Leading dims are stacks (experts): a
// block never crosses from one matrix of a stack into the next. Activations [..., C]: groups of n along the last dim.
// Blocks at an edge are shorter and have their own scale. Scale: the smallest power of two s with s * (448 or 6) >= the
// block's largest magnitude, exponent clamped to -127..127. Values: nearest code of x / s, ties to even; a negative
// that rounds to zero keeps its sign. A block that holds a NaN or an infinity has scale byte 255 and is NaN throughout
// when it is dequantised. Works on any device; nothing is read back to the host.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/cpu/scale_rule.h"
#include "tensor/tensor.h"

namespace tensor {

using kernels::cpu::BlockFormat;

// The part of a weight that shares a scale.
struct Block {
  int64_t rows, columns;
};
constexpr Block block_of(BlockFormat format) { return format == BlockFormat::e4m3 ? Block{128, 128} : Block{1, 32}; }

struct Quantised {
  Tensor codes;   // uint8 [..., R, C] (e4m3) or [..., R, C/2] (e2m1, low nibble = even column)
  Tensor scales;  // uint8 ue8m0 or f32, [..., ceil(R/128), ceil(C/128)] (e4m3) or [..., R, ceil(C/32)] (e2m1)
  BlockFormat format = BlockFormat::e4m3;
};

// The shapes that belong to a weight of this shape (at least 2 dims). Error{invalid_argument}: e2m1 with an odd C.
std::vector<int64_t> code_shape(const std::vector<int64_t>& shape, BlockFormat format);
std::vector<int64_t> scale_shape(const std::vector<int64_t>& shape, BlockFormat format);

// f32 or bf16 [..., R, C] -> codes and ue8m0 scales. A block of zeros only: scale 2^-22, codes 0.
// Error{invalid_argument}: fewer than 2 dims, another dtype, e2m1 with an odd C.
Quantised quantise_blocks(const Tensor& weight, BlockFormat format);

// f32 [..., R, C]: exact for ue8m0 scales; code times scale rounded once for f32 scales.
// Error{invalid_argument} when the shapes of codes and scales don't belong together, with both.
Tensor dequantise_blocks(const Quantised& quantised);

// Activations [..., C]: codes (as above; one group of `group` values along the last dim has one scale) and ue8m0 scales
// [..., ceil(C/group)]. Floor of a group's largest magnitude: 1e-4 (e4m3), 6 * 2^-126 (e2m1). f32 or bf16.
// Error{invalid_argument}: another dtype, e2m1 with an odd C.
Quantised quantise_groups(const Tensor& values, int64_t group, BlockFormat format);

// The largest magnitude of each block of a weight [..., R, C] of any float dtype: shaped as its scales. 0 where all are
// zero.
Tensor block_amax(const Tensor& weight, BlockFormat format);

// One number for each block -> [..., R, C] with that number at every place of its block. rows, columns: R, C.
Tensor spread_over_blocks(const Tensor& per_block, BlockFormat format, int64_t rows, int64_t columns);

// Activations: each value replaced by what it is after quantising in groups of `group` along the last dim and back
// (quantise_groups and dequantised). Result in the same dtype and shape, contiguous. No gradient. What kernels run:
// kernels/simulate.h.
Tensor simulate_groups(const Tensor& values, int64_t group, BlockFormat format);

}  // namespace tensor
