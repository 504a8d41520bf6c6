// Scores of a slice of tokens, by blocks of keys, then each token's choice.
#include "kernels/cpu/indexer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/key_products.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/indexer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Adds four heads to the scores of kLanes keys: a vector of keys per head, made from rows [n, stride].
template <class D>
HWY_INLINE hn::Vec<D> add_four_heads(D d, const float* dots, int64_t stride, const float* weight, hn::Vec<D> score) {
  [[maybe_unused]] const hn::CappedTag<float, 4> quad;
  const hn::RepartitionToWide<D> wide;
  // Unqualified: the baseline, a single lane, has nothing to interleave.
  const auto rows = [&](int64_t n) HWY_ATTR {
    if constexpr (hn::MaxLanes(d) == 4) {
      return hn::LoadU(d, dots + n * stride);
    } else {
      return Combine(d, hn::LoadU(quad, dots + (n + 4) * stride), hn::LoadU(quad, dots + n * stride));
    }
  };
  const auto a = rows(0), b = rows(1), c = rows(2), e = rows(3);
  const auto ab = hn::BitCast(wide, InterleaveLower(d, a, b)), ab_high = hn::BitCast(wide, InterleaveUpper(d, a, b));
  const auto ce = hn::BitCast(wide, InterleaveLower(d, c, e)), ce_high = hn::BitCast(wide, InterleaveUpper(d, c, e));
  const auto add = [&](float w, auto dot) HWY_ATTR {
    score = hn::MulAdd(hn::Set(d, w), hn::Max(hn::BitCast(d, dot), hn::Zero(d)), score);
  };
  add(weight[0], InterleaveLower(wide, ab, ce));
  add(weight[1], InterleaveUpper(wide, ab, ce));
  add(weight[2], InterleaveLower(wide, ab_high, ce_high));
  add(weight[3], InterleaveUpper(wide, ab_high, ce_high));
  return score;
}

// score[n] = sum over ascending h of weight[h] * relu(dots[n, h]).
void WeighHeads(const float* dots, int64_t stride, int64_t count, const float* weight, int64_t num_heads,
                float* score) {
  const hn::CappedTag<float, 8> d;
  const hn::CappedTag<float, 1> one;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const auto add_head = [&](int64_t n, int64_t h) HWY_ATTR {
    const auto dot = hn::Max(hn::LoadU(one, dots + n * stride + h), hn::Zero(one));
    const auto sum = hn::MulAdd(hn::LoadU(one, weight + h), dot, hn::LoadU(one, score + n));
    hn::StoreU(sum, one, score + n);
  };
  const int64_t quads = kLanes > 1 ? num_heads / 4 * 4 : 0;
  int64_t n = 0;
  if constexpr (kLanes > 1) {
    for (; n + kLanes <= count; n += kLanes) {
      auto sum = hn::Zero(d);
      for (int64_t h = 0; h < quads; h += 4) sum = add_four_heads(d, dots + n * stride + h, stride, weight + h, sum);
      hn::StoreU(sum, d, score + n);
      for (int64_t i = n; i < n + kLanes; ++i) {
        for (int64_t h = quads; h < num_heads; ++h) add_head(i, h);
      }
    }
  }
  for (; n < count; ++n) {
    score[n] = 0;
    for (int64_t h = 0; h < num_heads; ++h) add_head(n, h);
  }
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(WeighHeads);

namespace {

constexpr int64_t kSliceFloats = 1 << 22;        // of scores, at most (but for one token)
constexpr int64_t kBlockKeys = 256;              // of one unit of work
constexpr int64_t kDotKeys = 32;                 // whose products lie in the scratch
constexpr int64_t kGrainMultiplyAdds = 1 << 19;  // about 20 microseconds

struct Workspace {
  std::vector<const float*> keys;
  Scratch query_IP, dots_NP;
};

int64_t num_visible(const ChoiceInput& input, int64_t token) {
  const ChoiceSpan& span = input.spans[static_cast<size_t>(input.span_T[token])];
  return (span.start + token - span.first + 1) / input.ratio;
}

void score_block(const ChoiceInput& input, int64_t token, int64_t begin, int64_t end, float* score, Workspace& work) {
  const int64_t width = padded_heads(input.num_heads);
  const ChoiceSpan& span = input.spans[static_cast<size_t>(input.span_T[token])];
  float* const dots = work.dots_NP.floats(kDotKeys * width);
  for (int64_t n = begin; n < end; n += kDotKeys) {
    const int64_t count = std::min(kDotKeys, end - n);
    work.keys.clear();
    for (int64_t i = 0; i < count; ++i) work.keys.push_back(input.keys_BI + (span.entry_row + n + i) * input.dim);
    key_dots({work.query_IP.floats(0), work.keys.data(), count, input.num_heads, input.dim, 1, dots, width});
    HWY_DYNAMIC_DISPATCH(WeighHeads)
    (dots, width, count, input.weight_TH + token * input.num_heads, input.num_heads, score + n);
  }
}

// Scores [slice, most] of the tokens that have more than topk entries to choose from.
void score_slice(const ChoiceInput& input, int64_t first, int64_t count, int64_t most, float* scores) {
  const int64_t width = padded_heads(input.num_heads), blocks = (most + kBlockKeys - 1) / kBlockKeys;
  const int64_t cost = std::max<int64_t>(1, std::min(most, kBlockKeys) * width * input.dim);
  const int64_t grain = std::max<int64_t>(1, kGrainMultiplyAdds / cost);
  base::parallel_for(count * blocks, grain, [&](int64_t begin, int64_t end) {
    thread_local Workspace work;
    for (int64_t unit = begin, in_scratch = -1; unit < end; ++unit) {
      const int64_t token = first + unit / blocks, visible = num_visible(input, token);
      const int64_t from = unit % blocks * kBlockKeys, to = std::min(from + kBlockKeys, visible);
      if (visible <= input.topk || from >= to) continue;
      if (token != in_scratch) {
        transpose_heads(input.query_THI + token * input.num_heads * input.dim, input.num_heads, input.dim,
                        work.query_IP.floats(input.dim * width));
        in_scratch = token;
      }
      score_block(input, token, from, to, scores + (token - first) * most, work);
    }
  });
}

// Larger for the better of two scores; ids break ties.
uint64_t rank(float score, int64_t id) {
  uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 + 0 = 0
  if (std::isnan(score)) bits = 0xff800000u;              // NaN: -infinity
  bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(bits) << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}

}  // namespace

void best_ids(const float* scores, int64_t count, int64_t topk, int32_t* ids) {
  if (topk <= 0) return;
  int64_t found = 0;
  if (count <= topk) {
    for (; found < count; ++found) ids[found] = static_cast<int32_t>(found);
  } else {
    thread_local std::vector<uint64_t> ranks, order;
    if (ranks.capacity() < static_cast<size_t>(count)) {  // a context grows entry by entry
      ranks.reserve(static_cast<size_t>(std::max<int64_t>(1024, 2 * count)));
      order.reserve(ranks.capacity());
    }
    ranks.resize(static_cast<size_t>(count));
    for (int64_t n = 0; n < count; ++n) ranks[static_cast<size_t>(n)] = rank(scores[n], n);
    order = ranks;
    const auto last = order.begin() + (topk - 1);
    std::nth_element(order.begin(), last, order.end(), std::greater<>());
    for (int64_t n = 0; n < count; ++n) {
      if (ranks[static_cast<size_t>(n)] >= *last) ids[found++] = static_cast<int32_t>(n);
    }
  }
  std::fill(ids + found, ids + topk, -1);
}

void choose_entries(const ChoiceInput& input, int32_t* chosen_TA) {
  int64_t most = 0;
  for (int64_t token = 0; token < input.num_tokens; ++token) most = std::max(most, num_visible(input, token));
  const int64_t step =
      std::clamp<int64_t>(kSliceFloats / std::max<int64_t>(1, most), 1, std::max<int64_t>(1, input.num_tokens));
  thread_local Scratch memory;
  float* const scores = memory.floats(most > input.topk ? step * most : 0);
  for (int64_t first = 0; first < input.num_tokens; first += step) {
    const int64_t count = std::min(step, input.num_tokens - first);
    if (most > input.topk) score_slice(input, first, count, most, scores);
    const int64_t grain = 1 + 10000 / (1 + most + input.topk);
    base::parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        best_ids(scores + i * most, num_visible(input, first + i), input.topk, chosen_TA + (first + i) * input.topk);
      }
    });
  }
}

}  // namespace kernels::cpu
#endif
