// Layouts of passes for tests of kernels, and caches that hold poison wherever no sequence has written.
#pragma once
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/layout.h"
#include "kernels/op_checks.h"

namespace test {

using kernels::EntryLayout;
using kernels::Layout;
using kernels::Span;

inline constexpr double kPoisonValue = std::numeric_limits<double>::quiet_NaN();

// Compressed entries of a pass; capacity 0: without a cache.
inline EntryLayout entry_layout(const Layout& layout, int64_t ratio, bool overlap, int64_t capacity) {
  EntryLayout entries{ratio, overlap, capacity, 0, {}};
  for (const Span& span : layout.spans) {
    entries.first_new_S.push_back(entries.num_new);
    entries.num_new += entries.end_entry(span) - entries.first_entry(span);
  }
  return entries;
}

// spans: start, count, slot. csa of ratio 4 with overlap, hca of `hca_ratio`.
inline Layout pass_layout(std::vector<Span> spans, int64_t window, bool cached, int64_t hca_ratio = 8,
                          int64_t capacity_tokens = 0) {
  Layout layout;
  layout.window = window;
  layout.cached = cached;
  for (Span& span : spans) {
    span.first = layout.num_tokens;
    layout.num_tokens += span.count;
    for (int64_t i = 0; i < span.count; ++i) {
      layout.position_T.push_back(static_cast<int32_t>(span.start + i));
      layout.span_T.push_back(static_cast<int32_t>(layout.spans.size()));
    }
    layout.spans.push_back(span);
  }
  layout.csa = entry_layout(layout, 4, true, cached ? capacity_tokens / 4 : 0);
  layout.hca = entry_layout(layout, hca_ratio, false, cached ? capacity_tokens / hca_ratio : 0);
  return layout;
}

// Entries as a pass over them finds them: [B, K] without a cache; else [S, N, K], poisoned where no token can see them.
inline Tensor entries_of(const Layout& layout, const EntryLayout& entries, int64_t slots, int64_t dim, uint64_t seed) {
  if (!layout.cached) return normal({entries.num_new, dim}, seed);
  Tensor cache = at::full({slots, entries.capacity, dim}, kPoisonValue, at::kFloat);
  for (const Span& span : layout.spans) {
    const int64_t count = entries.end_entry(span);
    cache[span.slot].narrow(0, 0, count).copy_(normal({count, dim}, seed + 10 + static_cast<uint64_t>(span.slot)));
  }
  return cache;
}

// The ring as a pass finds it, poisoned where its sequence has not been: [S, X, K].
inline Tensor ring_of(const Layout& layout, int64_t slots, int64_t dim, uint64_t seed) {
  Tensor ring = at::full({slots, layout.window, dim}, kPoisonValue, at::kFloat);
  for (const Span& span : layout.spans) {
    for (int64_t p = std::max<int64_t>(0, span.start - layout.window); p < span.start; ++p)
      ring[span.slot][p % layout.window].copy_(normal({dim}, seed + static_cast<uint64_t>(1000 * span.slot + p)));
  }
  return ring;
}

// A random choice of at most `topk` of each token's visible entries, ascending: int32 [T, A].
inline Tensor random_choice(const Layout& layout, const EntryLayout& entries, int64_t topk, uint64_t seed) {
  base::Philox random(seed);
  std::vector<int32_t> ids;
  for (const int32_t position : layout.position_T) {
    std::vector<int32_t> row;
    for (int32_t w = 0; w < (position + 1) / entries.ratio; ++w) row.push_back(w);
    while (static_cast<int64_t>(row.size()) > topk)
      row.erase(row.begin() + static_cast<int64_t>(random.next_below(row.size())));
    row.resize(static_cast<size_t>(topk), -1);
    ids.insert(ids.end(), row.begin(), row.end());
  }
  return at::tensor(ids, at::kInt).view({layout.num_tokens, topk});
}

}  // namespace test
