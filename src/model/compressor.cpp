// Projection, pooling, and the rows that wait for their block to end.
#include "model/compressor.h"

#include <limits>

#include "model/numerics.h"

namespace model {
namespace {

// Rows of open blocks of the spans (with a cache), this pass's rows, and one row for "before the sequence".
Tensor row_pool(const Tensor& new_TC, const Tensor* kept_SPC, const Layout& layout, double absent) {
  const Tensor sentinel = at::full({1, new_TC.size(1)}, absent, new_TC.options());
  if (kept_SPC == nullptr) return at::cat({new_TC, sentinel});
  return at::cat({kept_SPC->index_select(0, layout.slot_S).flatten(0, 1), new_TC, sentinel});
}

void keep_rows(Tensor& kept_SPC, const Tensor& new_TC, const CompressLayout& blocks) {
  kept_SPC.flatten(0, 1).index_copy_(0, blocks.state_to, new_TC.index_select(0, blocks.state_from));
}

// [B, P, C] -> [B, P, K]: rows of the block before give their first K channels, own rows their last K.
Tensor block_channels(const Tensor& rows_BPC, const CompressLayout& blocks, int64_t dim) {
  if (!blocks.overlap) return rows_BPC;
  const auto halves = rows_BPC.split(blocks.ratio, 1);
  return at::cat({halves[0].narrow(2, 0, dim), halves[1].narrow(2, dim, dim)}, 1);
}

}  // namespace

Tensor compress(const Config& config, const Profile& profile, const CompressorWeights& weights, const Tensor& input_TD,
                const Layout& layout, const CompressLayout& blocks, CompressorState* state) {
  const int64_t dim = weights.norm.size(0);
  const Tensor kv_TC = at::linear(input_TD, weights.wkv);
  const Tensor score_TC = at::linear(input_TD, weights.wgate) + gather_rows(weights.ape, blocks.ape_row_T);
  Tensor entries;
  if (blocks.num_new > 0) {
    const Tensor kv_pool = row_pool(kv_TC, state ? &state->kv_SPC : nullptr, layout, 0);
    const Tensor score_pool =
        row_pool(score_TC, state ? &state->score_SPC : nullptr, layout, -std::numeric_limits<double>::infinity());
    const Tensor kv_BPK = block_channels(gather_rows(kv_pool, blocks.rows_BP), blocks, dim);
    const Tensor score_BPK = block_channels(gather_rows(score_pool, blocks.rows_BP), blocks, dim);
    const Tensor pooled_BK = (at::softmax(score_BPK, 1) * kv_BPK).sum(1);
    const Tensor normed_BK = rms_norm(profile, rounded(profile, pooled_BK), weights.norm, config.rms_norm_eps);
    entries = rounded(profile, rotate(normed_BK, blocks.rope_B));
  }
  if (state != nullptr) {
    keep_rows(state->kv_SPC, kv_TC, blocks);
    keep_rows(state->score_SPC, score_TC, blocks);
  }
  return entries;
}

Tensor entry_pool(const Tensor& new_entries_BK, const CompressLayout& blocks, CompressorState* state) {
  if (state != nullptr) {
    Tensor stored = state->entries_SNK.flatten(0, 1);
    stored.index_fill_(0, blocks.reset_entries, 0);
    if (new_entries_BK.defined()) stored.index_copy_(0, blocks.entry_slot_B, new_entries_BK);
  }
  if (blocks.max_entries == 0) return {};
  return state != nullptr ? state->entries_SNK.flatten(0, 1) : new_entries_BK;
}

}  // namespace model
