// One unit of work is an entry and a block of its channels; vectors over channels, sums over rows.
#include "kernels/cpu/compressor.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/compressor.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp_inl.h"
#include "kernels/cpu/round_inl.h"

#ifndef FURLONG_KERNELS_CPU_COMPRESSOR_ROWS
#define FURLONG_KERNELS_CPU_COMPRESSOR_ROWS
namespace kernels::cpu {

// A row that an entry pools, moved to the channels that it gives.
struct PooledRow {
  const float *kv, *score, *ape;  // ape nullptr: score holds it already
  float *dkv = nullptr, *dscore = nullptr;
};

struct ChannelBlock {
  const std::vector<PooledRow>* rows;
  int64_t begin, end;  // channels of the entry
  float* weights;      // room for 16 floats a row
};

}  // namespace kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

template <class Access>
HWY_INLINE V row_score(const PooledRow& row, int64_t c, const Access& access) {
  const V score = access.load(row.score + c);
  return row.ape == nullptr ? score : hn::Add(score, access.load(row.ape + c));
}

// Weights of the rows at channels c .. into block.weights (a vector a row); returns the weighted sum.
template <class Access>
HWY_INLINE V pool_vector(const ChannelBlock& block, int64_t c, const Access& access) {
  const D d;
  const std::vector<PooledRow>& rows = *block.rows;
  V highest = row_score(rows[0], c, access);
  for (size_t r = 1; r < rows.size(); ++r) highest = hn::Max(highest, row_score(rows[r], c, access));
  V total = hn::Zero(d), sum = hn::Zero(d);
  float* weights = block.weights;
  for (const PooledRow& row : rows) {
    const V e = exp_keeping_nan(d, hn::Sub(row_score(row, c, access), highest));
    hn::StoreU(e, d, weights);
    total = hn::Add(total, e);
    weights += kWidth;
  }
  weights = block.weights;
  for (const PooledRow& row : rows) {
    const V weight = hn::Div(hn::LoadU(d, weights), total);
    hn::StoreU(weight, d, weights);
    sum = hn::MulAdd(weight, access.load(row.kv + c), sum);
    weights += kWidth;
  }
  return sum;
}

void PoolChannels(const ChannelBlock& block, bool round_bf16, float* out) {
  each_vector(block.end - block.begin, [&](int64_t i, auto access) HWY_ATTR {
    const V sum = pool_vector(block, block.begin + i, access);
    access.store(round_bf16 ? round_to_bf16(sum) : sum, out + block.begin + i);
  });
}

// Spec 4.5: dkv = w * dy, dscore = w * dy * (kv - y).
void PoolChannelsBackward(const ChannelBlock& block, const float* dout) {
  each_vector(block.end - block.begin, [&](int64_t i, auto access) HWY_ATTR {
    const int64_t c = block.begin + i;
    const V pooled = pool_vector(block, c, access), dy = access.load(dout + c);
    const float* weights = block.weights;
    for (const PooledRow& row : *block.rows) {
      const V share = hn::Mul(hn::LoadU(D(), weights), dy);
      access.store(share, row.dkv + c);
      access.store(hn::Mul(share, hn::Sub(access.load(row.kv + c), pooled)), row.dscore + c);
      weights += kWidth;
    }
  });
}

// out = a + b
void AddRows(const float* a, const float* b, int64_t count, float* out) {
  each_vector(count, [&](int64_t c, auto access)
                         HWY_ATTR { access.store(hn::Add(access.load(a + c), access.load(b + c)), out + c); });
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(PoolChannels);
HWY_EXPORT(PoolChannelsBackward);
HWY_EXPORT(AddRows);

namespace {

constexpr int64_t kBlockChannels = 64;
constexpr int64_t kGrainRows = 4096;  // rows of a channel block, about 30 microseconds

void add_rows(const float* a, const float* b, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(AddRows)(a, b, count, out);
}

struct Entry {
  const PoolSpan* span;
  int64_t index;  // of its sequence
};

// The entry that is number `b` of the pass. Spans without one have the number of the next.
Entry new_entry(const PoolInput& input, int64_t b) {
  const auto after = std::upper_bound(input.spans.begin(), input.spans.end(), b,
                                      [](int64_t value, const PoolSpan& span) { return value < span.first_new; });
  const PoolSpan& span = *(after - 1);
  return {&span, input.first_entry(span) + b - span.first_new};
}

int64_t num_entries(const PoolInput& input) {
  int64_t count = 0;
  for (const PoolSpan& span : input.spans) count += input.end_entry(span) - input.first_entry(span);
  return count;
}

// Rows by position; those before the sequence are left out (their weight is 0).
void collect_rows(const PoolInput& input, const Entry& entry, const PoolGradients* gradients,
                  std::vector<PooledRow>& rows) {
  const PoolSpan& span = *entry.span;
  const int64_t channels = input.channels(), own = entry.index * input.ratio, end = own + input.ratio;
  rows.clear();
  for (int64_t p = std::max<int64_t>(0, end - input.rows()); p < end; ++p) {
    const int64_t channel = input.overlap && p >= own ? input.dim : 0;
    if (p < span.start) {
      const int64_t at = (span.state_row + p % input.rows()) * channels + channel;
      rows.push_back({input.state_kv + at, input.state_score + at, nullptr});
      continue;
    }
    const int64_t at = (span.first + p - span.start) * channels + channel;
    rows.push_back({input.kv_TC + at, input.score_TC + at, input.ape + p % input.ratio * channels + channel});
    if (gradients != nullptr) {
      rows.back().dkv = gradients->dkv_TC + at;
      rows.back().dscore = gradients->dscore_TC + at;
    }
  }
}

// body(b, block) for every block of channels of every new entry.
template <class F>
void for_blocks(const PoolInput& input, const PoolGradients* gradients, const F& body) {
  const int64_t blocks = (input.dim + kBlockChannels - 1) / kBlockChannels;
  const int64_t grain = std::max<int64_t>(1, kGrainRows / input.rows());
  base::parallel_for(num_entries(input) * blocks, grain, [&](int64_t begin, int64_t end) {
    thread_local std::vector<PooledRow> rows;
    thread_local Scratch weights;
    float* const room = weights.floats(16 * input.rows());
    for (int64_t unit = begin, entry = -1; unit < end; ++unit) {
      if (unit / blocks != entry) {
        entry = unit / blocks;
        collect_rows(input, new_entry(input, entry), gradients, rows);
      }
      const int64_t first = unit % blocks * kBlockChannels;
      body(entry, ChannelBlock{&rows, first, std::min(first + kBlockChannels, input.dim), room});
    }
  });
}

}  // namespace

void pool_rows(const PoolInput& input, bool round_bf16, float* out_BK) {
  for_blocks(input, nullptr, [&](int64_t entry, const ChannelBlock& block) {
    HWY_DYNAMIC_DISPATCH(PoolChannels)(block, round_bf16, out_BK + entry * input.dim);
  });
}

void keep_rows(const PoolInput& input) {
  const int64_t channels = input.channels(), period = input.rows();
  for (const PoolSpan& span : input.spans) {
    for (int64_t i = std::max<int64_t>(0, span.count - period); i < span.count; ++i) {
      const int64_t position = span.start + i;
      const int64_t from = (span.first + i) * channels, to = (span.state_row + position % period) * channels;
      std::memcpy(input.state_kv + to, input.kv_TC + from, static_cast<size_t>(channels) * sizeof(float));
      add_rows(input.score_TC + from, input.ape + position % input.ratio * channels, channels, input.state_score + to);
    }
  }
}

void pool_rows_backward(const PoolInput& input, const float* dout_BK, const PoolGradients& gradients) {
  const int64_t channels = input.channels();
  // What no entry pools: the rows of an open block, and the earlier channels of the last finished one.
  std::fill_n(gradients.dkv_TC, gradients.num_tokens * channels, 0.0f);
  std::fill_n(gradients.dscore_TC, gradients.num_tokens * channels, 0.0f);
  for_blocks(input, &gradients, [&](int64_t entry, const ChannelBlock& block) {
    HWY_DYNAMIC_DISPATCH(PoolChannelsBackward)(block, dout_BK + entry * input.dim);
  });
  base::parallel_for(input.ratio, 1, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      float* const dape = gradients.dape + j * channels;
      std::fill_n(dape, channels, 0.0f);
      for (const PoolSpan& span : input.spans) {
        for (int64_t i = j; i < span.count; i += input.ratio)
          add_rows(dape, gradients.dscore_TC + (span.first + i) * channels, channels, dape);
      }
    }
  });
}

}  // namespace kernels::cpu
#endif
