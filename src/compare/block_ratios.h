// Two versions of a weight that is stored in blocks, block by block: what one is of the other.
#pragma once
#include <vector>

#include "tensor/formats/block_scale.h"

namespace compare {

using tensor::Tensor;

struct BlockRatio {
  double ratio = 1;     // b = ratio * a, by least squares
  double residual = 0;  // |b - ratio * a| / |b|
  float amax_a = 0;     // largest magnitude
  bool zero = false;    // both are zero throughout: the rest says nothing
};

// f32 [.., R, C] each, of one shape; in the order of the scales. A block that is zero on one side only has residual 1.
std::vector<BlockRatio> block_ratios(const Tensor& a, const Tensor& b, tensor::BlockFormat format);

}  // namespace compare
