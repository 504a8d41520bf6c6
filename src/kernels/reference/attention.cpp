// Gathers the keys of each block of queries, masks those that a query does not see, and takes the softmax.
//
// Letters: Q blocks, L queries per block, H heads, K head_dim, N keys, X window keys of a block.
#include "kernels/reference/attention.h"

#include <algorithm>
#include <limits>

#include "kernels/reference/query_blocks.h"
#include "kernels/reference/simulate.h"

namespace kernels::reference {
namespace {

struct KeySet {
  Tensor keys_QNK, mask_QLN;
};

// By position. Rows are those of (the ring rows of all spans, this pass); positions that do not exist point to the
// span's own first token and are masked.
KeySet window_keys(const AttentionKeys& keys, const QueryBlocks& blocks, const Layout& layout) {
  const int64_t window = layout.window, width = blocks.len + window - 1;
  const auto num_spans = static_cast<int64_t>(layout.spans.size());
  const int64_t ring_rows = layout.cached ? num_spans * window : 0;
  std::vector<int64_t> row, position, slots;
  for (const Span& span : layout.spans) slots.push_back(span.slot);
  for (const QueryBlock& block : blocks.blocks) {
    const Span& span = layout.spans[block.span];
    for (int64_t p = block.first - window + 1; p < block.first + blocks.len; ++p) {
      const bool earlier = p >= 0 && p < span.start, now = p >= span.start && p < span.start + span.count;
      position.push_back(p);
      row.push_back(earlier ? static_cast<int64_t>(block.span) * window + p % window
                            : ring_rows + span.first + (now ? p - span.start : 0));
    }
  }
  const auto device = keys.kv_TK.device();
  const Tensor pool = layout.cached
                          ? at::cat({keys.ring_SXK.index_select(0, indices(slots, device)).flatten(0, 1), keys.kv_TK})
                          : keys.kv_TK;
  const Tensor position_Q1X = indices(position, device).view({-1, 1, width});
  const Tensor query_QL1 = blocks.position_QL.unsqueeze(2);
  return {at::embedding(pool, indices(row, device).view({-1, width})),
          (position_Q1X >= 0) & (position_Q1X <= query_QL1) & (position_Q1X > query_QL1 - window)};
}

// The choice as a mask over all entries of a block: [Q, L, N].
Tensor chosen_mask(const Tensor& chosen_TA, const QueryBlocks& blocks, int64_t num_entries) {
  const Tensor ids_QLA = to_blocks(chosen_TA.to(at::kLong), blocks);
  const Tensor known = at::where((ids_QLA < 0) | (ids_QLA >= num_entries), num_entries, ids_QLA);
  const Tensor mask = at::zeros({blocks.size(), blocks.len, num_entries + 1}, ids_QLA.options().dtype(at::kBool));
  return mask.scatter(2, known, true).narrow(2, 0, num_entries);
}

KeySet key_set(const AttentionKeys& keys, const QueryBlocks& blocks, const Layout& layout) {
  KeySet set = window_keys(keys, blocks, layout);
  if (keys.entry_layout == nullptr || !keys.entries_BK.defined()) return set;
  const BlockEntries entries = block_entries(blocks, layout, *keys.entry_layout);
  if (entries.count == 0) return set;
  const Tensor rows = keys.entries_BK.reshape({-1, keys.entries_BK.size(-1)});
  Tensor mask_QLN = entries.visible_QLN;
  if (keys.chosen_TA.defined()) mask_QLN = mask_QLN & chosen_mask(keys.chosen_TA, blocks, entries.count);
  return {at::cat({set.keys_QNK, gather_entries(rows, entries)}, 1), at::cat({set.mask_QLN, mask_QLN}, 2)};
}

}  // namespace

Tensor attend(const Tensor& query_THK, const AttentionKeys& keys, const Tensor& sink_H, double scale,
              const Layout& layout, Rounding rounding) {
  const QueryBlocks blocks = query_blocks(layout, query_THK.device());
  const KeySet set = key_set(keys, blocks, layout);
  const Tensor query_QLHK = to_blocks(query_THK, blocks), sink_H1 = sink_H.to(query_THK.scalar_type()).view({-1, 1});
  const Tensor dots_QLHN = at::bmm(query_QLHK.flatten(1, 2), set.keys_QNK.transpose(1, 2))
                               .view({blocks.size(), blocks.len, query_THK.size(1), -1});
  const Tensor score_QLHN =
      (dots_QLHN * scale).masked_fill(~set.mask_QLN.unsqueeze(2), -std::numeric_limits<double>::infinity());
  const Tensor max_QLH1 = at::maximum(score_QLHN.amax(-1, true), sink_H1).detach();  // its gradient cancels out
  const Tensor weight_QLHN = at::exp(score_QLHN - max_QLH1);
  const Tensor total_QLH1 = weight_QLHN.sum(-1, true) + at::exp(sink_H1 - max_QLH1);
  const Tensor out_QLHK = at::bmm(weight_QLHN.flatten(1, 2), set.keys_QNK).view(query_QLHK.sizes()) / total_QLH1;
  return rounded(from_blocks(out_QLHK, blocks), rounding);
}

void keep_window(const Tensor& kv_TK, const Layout& layout, Tensor& ring_SXK) {
  std::vector<int64_t> from, to;
  for (const Span& span : layout.spans) {
    for (int64_t i = std::max<int64_t>(0, span.count - layout.window); i < span.count; ++i) {
      from.push_back(span.first + i);
      to.push_back(span.slot * layout.window + (span.start + i) % layout.window);
    }
  }
  const auto device = kv_TK.device();
  ring_SXK.flatten(0, 1).index_copy_(0, indices(to, device), kv_TK.index_select(0, indices(from, device)));
}

}  // namespace kernels::reference
