// Sums over blocks of 128 x 128 or 1 x 32.
#include "compare/block_ratios.h"

#include <algorithm>
#include <cmath>

namespace compare {
namespace {

struct Sums {
  double aa = 0, ab = 0, bb = 0;
  float amax_a = 0;

  void add(float a, float b) {
    aa += double{a} * a;
    ab += double{a} * b;
    bb += double{b} * b;
    amax_a = std::max(amax_a, std::abs(a));
  }
  BlockRatio ratio() const {
    if (aa == 0 && bb == 0) return {1, 0, 0, true};
    if (aa == 0 || bb == 0) return {0, 1, amax_a, false};
    const double r = ab / aa;
    return {r, std::sqrt(std::max(0.0, bb - r * ab) / bb), amax_a, false};
  }
};

}  // namespace

std::vector<BlockRatio> block_ratios(const Tensor& a, const Tensor& b, tensor::BlockFormat format) {
  CHECK(a.sizes() == b.sizes() && a.dim() >= 2);
  const Tensor x = a.to(at::kCPU, at::kFloat).contiguous(), y = b.to(at::kCPU, at::kFloat).contiguous();
  const tensor::Block block = tensor::block_of(format);
  const int64_t rows = a.size(-2), columns = a.size(-1), stack = a.numel() / (rows * columns);
  const int64_t down = (rows + block.rows - 1) / block.rows, across = (columns + block.columns - 1) / block.columns;
  std::vector<Sums> sums(static_cast<size_t>(stack * down * across));
  const float *left = x.const_data_ptr<float>(), *right = y.const_data_ptr<float>();
  for (int64_t s = 0; s < stack; ++s) {
    for (int64_t r = 0; r < rows; ++r) {
      Sums* const line = sums.data() + (s * down + r / block.rows) * across;
      for (int64_t c = 0; c < columns; ++c) line[c / block.columns].add(*left++, *right++);
    }
  }
  std::vector<BlockRatio> ratios;
  for (const Sums& one : sums) ratios.push_back(one.ratio());
  return ratios;
}

}  // namespace compare
