// Backward, in slices of tokens whose weights fit into a bounded scratch: first every token and group of heads alone
// (softmax, dS, dquery), then every key row alone (its queries in order).
#include <cstring>

#include "base/parallel.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_keys.h"
#include "kernels/cpu/key_products.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/sink_softmax.h"

namespace kernels::cpu {
namespace {

constexpr int64_t kSliceFloats = 1 << 20;        // of weights and dS each, at most (but for one token)
constexpr int64_t kGrainMultiplyAdds = 1 << 19;  // about 20 microseconds

struct TokenKeys {
  int64_t first_window = 0, num_window = 0;  // row of its first window key
  int64_t first_entry = 0, num_entries = 0;  // row of its sequence's entry 0
};

// The tokens of one slice: weights [N, P] and what each attends to.
class Slice {
 public:
  Slice(const AttentionInput& input, int64_t tokens, int64_t most_keys)
      : width_(padded_heads(input.num_heads)),
        token_floats_(most_keys * width_),
        most_keys_(most_keys),
        keys_(static_cast<size_t>(tokens)),
        entries_(input.ratio > 0 ? static_cast<size_t>(tokens * most_keys) : 0),
        dsink_(static_cast<size_t>(tokens * input.num_heads)),
        weight_(weight_memory_.floats(tokens * token_floats_)),
        dscore_(dscore_memory_.floats(tokens * token_floats_)) {}

  void cover(int64_t begin, int64_t end) { begin_ = begin, end_ = end; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t width() const { return width_; }

  TokenKeys& keys(int64_t token) { return keys_[index(token)]; }
  int32_t* entries(int64_t token) { return entries_.data() + (token - begin_) * most_keys_; }
  float* weight(int64_t token) { return weight_ + (token - begin_) * token_floats_; }
  float* dscore(int64_t token) { return dscore_ + (token - begin_) * token_floats_; }
  float* dsink(int64_t token, int64_t num_heads) { return dsink_.data() + (token - begin_) * num_heads; }

 private:
  size_t index(int64_t token) const { return static_cast<size_t>(token - begin_); }

  int64_t begin_ = 0, end_ = 0, width_, token_floats_, most_keys_;
  std::vector<TokenKeys> keys_;
  std::vector<int32_t> entries_;  // of each token, ascending
  std::vector<float> dsink_;
  Scratch weight_memory_, dscore_memory_;
  float *weight_, *dscore_;
};

struct Backward {
  const AttentionInput& input;
  const AttentionStatistics& statistics;
  const float* dout_THK;
  const AttentionGradients& gradients;
  int64_t most_keys;
};

struct Workspace {
  std::vector<const float*> keys;
  std::vector<float*> rows;
  Scratch query_KP, dout_KP;
};

// ---- every token alone

void list_keys(const AttentionInput& input, Slice& slice, int64_t token) {
  const AttentionSpan& span = input.spans[static_cast<size_t>(input.span_T[token])];
  const int64_t position = token - span.first;
  TokenKeys keys;
  keys.num_window = std::min(position + 1, input.window);
  keys.first_window = token + 1 - keys.num_window;
  keys.first_entry = span.entry_row;
  int32_t* const entries = slice.entries(token);
  for_entries(input, token, position, [&](int64_t w) { entries[keys.num_entries++] = static_cast<int32_t>(w); });
  slice.keys(token) = keys;
}

void group_gradients(const Backward& call, Slice& slice, int64_t token, int64_t first_head, Workspace& work) {
  const AttentionInput& input = call.input;
  const int64_t dim = input.head_dim, heads = std::min(kHeadGroup, input.num_heads - first_head);
  const int64_t row = token * input.num_heads + first_head;
  const auto num_keys = static_cast<int64_t>(work.keys.size());
  float *const query = work.query_KP.floats(dim * padded_heads(heads)), *const dout = work.dout_KP.floats(
                                                                            dim * padded_heads(heads));
  float *const weight = slice.weight(token) + first_head, *const dscore = slice.dscore(token) + first_head;
  transpose_heads(input.query_THK + row * dim, heads, dim, query);
  transpose_heads(call.dout_THK + row * dim, heads, dim, dout);
  key_dots({query, work.keys.data(), num_keys, heads, dim, input.scale, weight, slice.width()});
  key_dots({dout, work.keys.data(), num_keys, heads, dim, 1, dscore, slice.width()});
  softmax_gradients({{weight, slice.width(), num_keys, heads, input.sink_H + first_head},
                     dscore,
                     call.statistics.max + row,
                     call.statistics.total + row,
                     input.scale,
                     slice.dsink(token, input.num_heads) + first_head});
  key_mix({dscore, slice.width(), work.keys.data(), num_keys, heads, dim, call.gradients.dquery_THK + row * dim});
}

void token_gradients(const Backward& call, Slice& slice) {
  const AttentionInput& input = call.input;
  const int64_t groups = (input.num_heads + kHeadGroup - 1) / kHeadGroup;
  const int64_t heads = std::min(input.num_heads, kHeadGroup);
  const int64_t cost = std::max<int64_t>(1, 3 * call.most_keys * padded_heads(heads) * input.head_dim);
  const int64_t grain = std::max<int64_t>(1, kGrainMultiplyAdds / cost);
  base::parallel_for((slice.end() - slice.begin()) * groups, grain, [&](int64_t begin, int64_t end) {
    thread_local Workspace work;
    for (int64_t unit = begin, token = -1; unit < end; ++unit) {
      if (slice.begin() + unit / groups != token) {
        token = slice.begin() + unit / groups;
        collect_keys(input, token, work.keys);
      }
      if (unit % groups == 0) list_keys(input, slice, token);
      group_gradients(call, slice, token, unit % groups * kHeadGroup, work);
    }
  });
}

// ---- every key row alone

// Adds to rows row(i) for the keys [first_key, first_key + count) of a token.
template <class F>
void add_rows(const Backward& call, Slice& slice, int64_t token, int64_t first_key, int64_t count, const F& row,
              Workspace& work) {
  const AttentionInput& input = call.input;
  work.rows.clear();
  for (int64_t i = 0; i < count; ++i) work.rows.push_back(row(i));
  const int64_t at = token * input.num_heads * input.head_dim, skip = first_key * slice.width();
  add_key_gradients({slice.dscore(token) + skip, slice.weight(token) + skip, slice.width(), input.query_THK + at,
                     call.dout_THK + at, work.rows.data(), count, input.num_heads, input.head_dim});
}

void window_gradients(const Backward& call, Slice& slice) {
  const int64_t dim = call.input.head_dim, oldest = std::max<int64_t>(0, slice.begin() - call.input.window + 1);
  base::parallel_for(slice.end() - oldest, 8, [&](int64_t begin, int64_t end) {
    thread_local Workspace work;
    begin += oldest, end += oldest;
    const int64_t last = std::min(slice.end(), end - 1 + call.input.window);
    for (int64_t token = std::max(slice.begin(), begin); token < last; ++token) {
      const TokenKeys& keys = slice.keys(token);
      const int64_t from = std::max(begin, keys.first_window), to = std::min(end, token + 1);
      if (from >= to) continue;
      add_rows(
          call, slice, token, from - keys.first_window, to - from,
          [&](int64_t i) { return call.gradients.dkv_TK + (from + i) * dim; }, work);
    }
  });
}

void entry_gradients(const Backward& call, Slice& slice) {
  const int64_t dim = call.input.head_dim;
  base::parallel_for(call.gradients.num_entries, 8, [&](int64_t begin, int64_t end) {
    thread_local Workspace work;
    for (int64_t token = slice.begin(); token < slice.end(); ++token) {
      const TokenKeys& keys = slice.keys(token);
      const int32_t* const entries = slice.entries(token);
      const int32_t *const stop = entries + keys.num_entries,
                           *const from = std::lower_bound(entries, stop, begin - keys.first_entry),
                           *const to = std::lower_bound(from, stop, end - keys.first_entry);
      if (from == to) continue;
      add_rows(
          call, slice, token, keys.num_window + (from - entries), to - from,
          [&](int64_t i) { return call.gradients.dentries_BK + (keys.first_entry + from[i]) * dim; }, work);
    }
  });
}

}  // namespace

void attend_backward(const AttentionInput& input, const AttentionStatistics& statistics, const float* dout_THK,
                     const AttentionGradients& gradients) {
  const int64_t dim = input.head_dim;
  std::fill_n(gradients.dkv_TK, input.num_tokens * dim, 0.0f);
  if (gradients.num_entries > 0) std::fill_n(gradients.dentries_BK, gradients.num_entries * dim, 0.0f);
  std::fill_n(gradients.dsink_H, input.num_heads, 0.0f);
  const Backward call{input, statistics, dout_THK, gradients, max_keys(input)};
  const int64_t token_floats = std::max<int64_t>(1, call.most_keys * padded_heads(input.num_heads));
  const int64_t step = std::clamp<int64_t>(kSliceFloats / token_floats, 1, std::max<int64_t>(1, input.num_tokens));
  Slice slice(input, step, call.most_keys);
  for (int64_t begin = 0; begin < input.num_tokens; begin += step) {
    slice.cover(begin, std::min(begin + step, input.num_tokens));
    token_gradients(call, slice);
    window_gradients(call, slice);
    if (input.ratio > 0) entry_gradients(call, slice);
    for (int64_t token = slice.begin(); token < slice.end(); ++token) {
      const float* const dsink = slice.dsink(token, input.num_heads);
      for (int64_t h = 0; h < input.num_heads; ++h) gradients.dsink_H[h] += dsink[h];
    }
  }
}

}  // namespace kernels::cpu
