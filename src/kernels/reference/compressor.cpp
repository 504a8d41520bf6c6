// Gathers the rows that each entry pools, and the rows that wait for their block to end.
//
// Letters: T tokens, K entry dim, C channels, B new entries, P rows pooled.
#include "kernels/reference/compressor.h"

#include <algorithm>
#include <limits>

#include "kernels/reference/query_blocks.h"
#include "kernels/reference/rope.h"
#include "kernels/reference/simulate.h"

namespace kernels::reference {
namespace {

// What a pass pools, as rows of (state rows of all spans, this pass, one row for "before the sequence").
struct PoolIndex {
  std::vector<int64_t> slots, ape_row_T, row_BP, stored_B;
  Layout first_token_B;  // positions that entries are turned to, as a layout
};

PoolIndex pool_index(const Layout& layout, const EntryLayout& entries) {
  PoolIndex index;
  const int64_t ratio = entries.ratio, rows = entries.rows();
  const auto num_spans = static_cast<int64_t>(layout.spans.size());
  const int64_t kept = layout.cached ? num_spans * rows : 0, absent = kept + layout.num_tokens;
  for (int64_t s = 0; s < num_spans; ++s) {
    const Span& span = layout.spans[static_cast<size_t>(s)];
    index.slots.push_back(span.slot);
    for (int64_t i = 0; i < span.count; ++i) index.ape_row_T.push_back((span.start + i) % ratio);
    for (int64_t w = entries.first_entry(span); w < entries.end_entry(span); ++w) {
      for (int64_t p = (w + 1) * ratio - rows; p < (w + 1) * ratio; ++p) {
        const int64_t row = p >= span.start ? kept + span.first + p - span.start : s * rows + p % rows;
        index.row_BP.push_back(p < 0 ? absent : row);
      }
      index.stored_B.push_back(span.slot * entries.capacity + w);
      index.first_token_B.position_T.push_back(static_cast<int32_t>(w * ratio));
    }
  }
  index.first_token_B.num_tokens = static_cast<int64_t>(index.stored_B.size());
  return index;
}

Tensor row_pool(const Tensor& new_TC, const Tensor* kept_SPC, const PoolIndex& index, double absent) {
  const Tensor last = at::full({1, new_TC.size(1)}, absent, new_TC.options());
  if (kept_SPC == nullptr) return at::cat({new_TC, last});
  return at::cat({kept_SPC->index_select(0, indices(index.slots, new_TC.device())).flatten(0, 1), new_TC, last});
}

// [B, P, C] -> [B, P, K]: rows of the block before give their first K channels, own rows their last K.
Tensor block_channels(const Tensor& rows_BPC, const EntryLayout& entries, int64_t dim) {
  if (!entries.overlap) return rows_BPC;
  const auto halves = rows_BPC.split(entries.ratio, 1);
  return at::cat({halves[0].narrow(2, 0, dim), halves[1].narrow(2, dim, dim)}, 1);
}

void keep_rows(const Tensor& new_TC, const Layout& layout, int64_t rows, Tensor& kept_SPC) {
  std::vector<int64_t> from, to;
  for (const Span& span : layout.spans) {
    for (int64_t i = std::max<int64_t>(0, span.count - rows); i < span.count; ++i) {
      from.push_back(span.first + i);
      to.push_back(span.slot * rows + (span.start + i) % rows);
    }
  }
  const auto device = new_TC.device();
  kept_SPC.flatten(0, 1).index_copy_(0, indices(to, device), new_TC.index_select(0, indices(from, device)));
}

}  // namespace

Tensor pool_entries(const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape, const Tensor& norm_weight,
                    const CompressorOptions& options, const Layout& layout, const EntryLayout& entries,
                    const RopeTable& table, CompressorState* state) {
  const auto device = kv_TC.device();
  const int64_t dim = norm_weight.size(0);
  const PoolIndex index = pool_index(layout, entries);
  const Tensor biased_TC = score_TC + at::embedding(ape, indices(index.ape_row_T, device));
  Tensor result;
  if (entries.num_new > 0) {
    const Tensor row_BP = indices(index.row_BP, device).view({-1, entries.rows()});
    const auto rows = [&](const Tensor& new_TC, const Tensor* kept, double absent) {
      return block_channels(at::embedding(row_pool(new_TC, kept, index, absent), row_BP), entries, dim);
    };
    const Tensor kv_BPK = rows(kv_TC, state != nullptr ? &state->kv_SPC : nullptr, 0);
    const Tensor score_BPK =
        rows(biased_TC, state != nullptr ? &state->score_SPC : nullptr, -std::numeric_limits<double>::infinity());
    const Tensor pooled_BK = rounded((at::softmax(score_BPK, 1) * kv_BPK).sum(1), options.rounding);
    result =
        reference::kv_rows(pooled_BK, norm_weight, {options.eps, options.rounding, options.grid == EntryGrid::kv_e4m3},
                           index.first_token_B, table);
    if (options.grid == EntryGrid::index_e2m1) result = hadamard_e2m1(result);
  }
  if (state != nullptr) {
    keep_rows(kv_TC, layout, entries.rows(), state->kv_SPC);
    keep_rows(biased_TC, layout, entries.rows(), state->score_SPC);
    if (result.defined()) state->entries_SNK.flatten(0, 1).index_copy_(0, indices(index.stored_B, device), result);
  }
  return result;
}

}  // namespace kernels::reference
