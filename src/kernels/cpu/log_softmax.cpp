// A row in two sweeps: highest logit, then shifts, exponentials and their sums.
#include "kernels/cpu/log_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/log_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#ifndef FURLONG_KERNELS_CPU_LOG_SOFTMAX_BLOCK
#define FURLONG_KERNELS_CPU_LOG_SOFTMAX_BLOCK
namespace kernels::cpu {

constexpr int64_t kLanes = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a block of the row adds.
struct VocabBlock {
  float highest = -kInfinity;  // NaN: the block has a NaN or +inf
  float total = 0, weighted = 0;
};

struct RowPass {
  const float* logits;
  int64_t vocab;
  float temperature, max;
  float *shifted, *weights;  // weights: or nullptr
  VocabBlock* blocks;
};

}  // namespace kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;
constexpr int64_t kWidth = hn::MaxLanes(D()), kParts = kLanes / kWidth;

float highest_in(const float* logits, int64_t count) {
  const D d;
  const V infinity = hn::Set(d, kInfinity);
  V highest = hn::Neg(infinity);
  auto finite = hn::Lt(highest, infinity);
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const V z = hn::LoadU(d, logits + i);
    finite = hn::And(finite, hn::Lt(z, infinity));  // false for NaN too
    highest = hn::Max(highest, z);
  }
  float rest = -kInfinity;
  bool rest_finite = true;
  for (; i < count; ++i) {
    rest_finite = rest_finite && logits[i] < kInfinity;
    rest = std::max(rest, logits[i]);
  }
  if (!rest_finite || !hn::AllTrue(d, finite)) return std::numeric_limits<float>::quiet_NaN();
  return std::max(rest, hn::GetLane(hn::MaxOfLanes(d, highest)));
}

void HighestOfBlocks(const RowPass& row, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const int64_t first = b * kVocabBlock;
    row.blocks[b].highest = highest_in(row.logits + first, std::min(kVocabBlock, row.vocab - first));
  }
}

struct LaneSums {
  V total[kParts], weighted[kParts];
};

float add_lanes(const V (&parts)[kParts]) {
  const D d;
  HWY_ALIGN float lanes[kLanes];
  for (int64_t j = 0; j < kParts; ++j) hn::Store(parts[j], d, lanes + j * kWidth);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// 16 ids.
template <bool kKeepsWeights>
HWY_INLINE void shift_group(const float* logits, V temperature, V max, float* shifted, float* weights, LaneSums& sums) {
  const D d;
  // Below it a weight is 0, and 0 times a finite value adds nothing.
  const V least = hn::Set(d, -1000.0f);
  for (int64_t j = 0; j < kParts; ++j) {
    const V y = hn::Sub(hn::Div(hn::LoadU(d, logits + j * kWidth), temperature), max);
    const V weight = hn::Exp(d, y);
    hn::StoreU(y, d, shifted + j * kWidth);
    if (kKeepsWeights) hn::StoreU(weight, d, weights + j * kWidth);
    sums.total[j] = hn::Add(sums.total[j], weight);
    sums.weighted[j] = hn::MulAdd(weight, hn::Max(y, least), sums.weighted[j]);
  }
}

template <bool kKeepsWeights>
void shift_block(const RowPass& row, int64_t first, VocabBlock& block) {
  const D d;
  const V temperature = hn::Set(d, row.temperature), max = hn::Set(d, row.max);
  LaneSums sums;
  for (int64_t j = 0; j < kParts; ++j) sums.total[j] = sums.weighted[j] = hn::Zero(d);
  const int64_t end = std::min(first + kVocabBlock, row.vocab);
  int64_t i = first;
  for (; i + kLanes <= end; i += kLanes) {
    shift_group<kKeepsWeights>(row.logits + i, temperature, max, row.shifted + i,
                               kKeepsWeights ? row.weights + i : nullptr, sums);
  }
  if (i < end) {
    float logits[kLanes], shifted[kLanes], weights[kLanes];
    std::fill(std::copy(row.logits + i, row.logits + end, logits), logits + kLanes, -kInfinity);
    shift_group<kKeepsWeights>(logits, temperature, max, shifted, weights, sums);
    std::copy(shifted, shifted + (end - i), row.shifted + i);
    if (kKeepsWeights) std::copy(weights, weights + (end - i), row.weights + i);
  }
  block.total = add_lanes(sums.total);
  block.weighted = add_lanes(sums.weighted);
}

void ShiftBlocks(const RowPass& row, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    row.weights ? shift_block<true>(row, b * kVocabBlock, row.blocks[b])
                : shift_block<false>(row, b * kVocabBlock, row.blocks[b]);
  }
}

void BlockMasses(const float* weights, int64_t vocab, float least, double* sums) {
  using D64 = hn::CappedTag<double, kLanes>;
  using D32 = hn::Rebind<float, D64>;
  const D64 d64;
  const D32 d32;
  constexpr int64_t kWidth64 = hn::MaxLanes(d64), kParts64 = kLanes / kWidth64;
  const auto low = hn::Set(d32, least);
  for (int64_t first = 0; first < vocab; first += kVocabBlock) {
    const int64_t end = std::min(first + kVocabBlock, vocab);
    hn::Vec<D64> parts[kParts64];
    for (auto& part : parts) part = hn::Zero(d64);
    int64_t i = first;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t j = 0; j < kParts64; ++j) {
        const auto w = hn::LoadU(d32, weights + i + j * kWidth64);
        parts[j] = hn::Add(parts[j], hn::PromoteTo(d64, hn::IfThenElseZero(hn::Ge(w, low), w)));
      }
    }
    HWY_ALIGN double lanes[kLanes];
    for (int64_t j = 0; j < kParts64; ++j) hn::Store(parts[j], d64, lanes + j * kWidth64);
    for (int64_t lane = 0; i + lane < end; ++lane) {
      if (weights[i + lane] >= least) lanes[lane] += weights[i + lane];
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    *sums++ = sum;
  }
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {

HWY_EXPORT(HighestOfBlocks);
HWY_EXPORT(ShiftBlocks);
HWY_EXPORT(BlockMasses);

constexpr int64_t kBlocksPerRange = 32;  // about 20 microseconds

// Lowest id of the highest logit; -1: a NaN or +inf, or all -inf.
int64_t best_of(const RowPass& row, int64_t num_blocks) {
  float highest = -kInfinity;
  int64_t found = -1;
  for (int64_t b = 0; b < num_blocks; ++b) {
    if (std::isnan(row.blocks[b].highest)) return -1;
    if (row.blocks[b].highest > highest) highest = row.blocks[b].highest, found = b;
  }
  if (found < 0) return -1;
  return std::find(row.logits + found * kVocabBlock, row.logits + row.vocab, highest) - row.logits;
}

}  // namespace

RowStatistics log_softmax_row(const float* logits, int64_t vocab, float temperature, float* shifted, float* weights) {
  thread_local std::vector<VocabBlock> blocks;
  const int64_t num_blocks = (vocab + kVocabBlock - 1) / kVocabBlock;
  blocks.resize(static_cast<size_t>(num_blocks));
  RowPass row{logits, vocab, temperature, 0, shifted, weights, blocks.data()};
  base::parallel_for(num_blocks, 4 * kBlocksPerRange, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(HighestOfBlocks)(row, begin, end);
  });
  RowStatistics statistics;
  statistics.best = best_of(row, num_blocks);
  if (statistics.best < 0) return {};
  row.max = statistics.max = logits[statistics.best] / temperature;
  if (!std::isfinite(row.max)) return {};
  base::parallel_for(num_blocks, kBlocksPerRange, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ShiftBlocks)(row, begin, end);
  });
  float total = 0, weighted = 0;
  for (const VocabBlock& block : blocks) total += block.total, weighted += block.weighted;
  statistics.log_sum = std::log(total);
  statistics.entropy = statistics.log_sum - weighted / total;
  statistics.finite = true;
  return statistics;
}

void block_masses(const float* weights, int64_t vocab, float least, double* sums) {
  HWY_DYNAMIC_DISPATCH(BlockMasses)(weights, vocab, least, sums);
}

}  // namespace kernels::cpu
#endif
