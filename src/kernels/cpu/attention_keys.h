// The keys that one query sees, as a list of rows: window keys by position, then compressed entries by index.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/attention.h"

namespace kernels::cpu {

constexpr int64_t kHeadGroup = 16;  // heads that one unit of work handles

inline int64_t visible_entries(int64_t position, int64_t ratio) { return ratio > 0 ? (position + 1) / ratio : 0; }

// body(w) for each entry that the token attends to. An id that the token may not see is passed over, and so is one that
// does not ascend: such a list is nobody's choice, but rows that are not the sequence's are never read.
template <class F>
void for_entries(const AttentionInput& input, int64_t token, int64_t position, const F& body) {
  const int64_t visible = visible_entries(position, input.ratio);
  if (input.chosen_TA == nullptr) {
    for (int64_t w = 0; w < visible; ++w) body(w);
    return;
  }
  const int32_t* chosen = input.chosen_TA + token * input.num_chosen;
  int64_t last = -1;
  for (int64_t a = 0; a < input.num_chosen; ++a) {
    if (chosen[a] <= last || chosen[a] >= visible) continue;
    last = chosen[a];
    body(last);
  }
}

// The keys' rows, in order. Returns how many of them are window keys.
inline int64_t collect_keys(const AttentionInput& input, int64_t token, std::vector<const float*>& rows) {
  const AttentionSpan& span = input.spans[static_cast<size_t>(input.span_T[token])];
  const int64_t position = span.start + token - span.first, dim = input.head_dim;
  rows.clear();
  int64_t p = std::max<int64_t>(0, position - input.window + 1);
  for (; p < span.start; ++p) rows.push_back(input.ring + (span.ring_row + p % input.window) * dim);
  for (; p <= position; ++p) rows.push_back(input.kv_TK + (span.first + p - span.start) * dim);
  const auto num_window = static_cast<int64_t>(rows.size());
  for_entries(input, token, position, [&](int64_t w) { rows.push_back(input.entries + (span.entry_row + w) * dim); });
  return num_window;
}

// The most keys of any token.
inline int64_t max_keys(const AttentionInput& input) {
  int64_t most = 0;
  for (const AttentionSpan& span : input.spans) {
    const int64_t end = span.start + span.count;
    const int64_t visible = visible_entries(end - 1, input.ratio);
    most = std::max(most, std::min(end, input.window) +
                              (input.chosen_TA == nullptr ? visible : std::min(visible, input.num_chosen)));
  }
  return most;
}

}  // namespace kernels::cpu
