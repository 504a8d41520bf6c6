// Scores, top-k with defined ties, and the mask that attention reads.
#include "model/indexer.h"

#include "model/compressor.h"
#include "model/numerics.h"

namespace model {
namespace {

// [Q, L, N] f32, invisible entries at -inf.
Tensor entry_scores(const Config& config, const Profile& profile, const IndexerWeights& weights,
                    const IndexerInput& input, const Layout& layout, const Tensor& key_pool) {
  const int64_t heads = config.index_n_heads, dim = config.index_head_dim;
  const CompressLayout& blocks = layout.csa;
  const Tensor query = project(profile, input.query_in_TR, weights.wq_b).unflatten(1, {heads, dim});
  const Tensor query_THI = index_entry(profile, rounded(profile, rotate(query, layout.rope_compress_T)));
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim)) / std::sqrt(static_cast<double>(heads));
  const Tensor weight_TH = rounded(profile, project(profile, input.input_TD, weights.weights_proj) * scale);
  const Tensor query_QMI = gather_rows(query_THI.flatten(1), layout.block_token_QL).view({layout.num_blocks, -1, dim});
  const Tensor keys_QNI = gather_rows(key_pool, blocks.entries_QN);
  const Tensor dots =
      at::bmm(query_QMI, keys_QNI.transpose(1, 2)).relu_().view({layout.num_blocks, layout.block_len, heads, -1});
  const Tensor weight_QLH = gather_rows(weight_TH, layout.block_token_QL);
  return (dots * weight_QLH.unsqueeze(3))
      .sum(2)
      .masked_fill_(~blocks.visible_QLN, -std::numeric_limits<double>::infinity());
}

// Ids of the best k, ascending, num_entries where there is none: [Q, L, A].
Tensor best_entries(const Tensor& score_QLN, const Tensor& visible_QLN, int64_t topk) {
  const int64_t num_entries = score_QLN.size(2), k = std::min(topk, num_entries);
  const Tensor order =
      std::get<1>(at::sort(score_QLN, /*stable=*/true, /*dim=*/2, /*descending=*/true)).narrow(2, 0, k);
  const Tensor ids = std::get<0>(at::where(visible_QLN.gather(2, order), order, num_entries).sort(2));
  return at::constant_pad_nd(ids, {0, topk - k}, num_entries);
}

}  // namespace

Tensor choose_entries(const Config& config, const Profile& profile, const IndexerWeights& weights,
                      const IndexerInput& input, const Layout& layout, CompressorState* state, Tensor* chosen_TA,
                      bool replay) {
  const at::NoGradGuard no_grad;
  const CompressLayout& blocks = layout.csa;
  Tensor keys = compress(config, profile, weights.compressor, input.input_TD, layout, blocks, state);
  if (keys.defined()) keys = index_entry(profile, keys);
  const Tensor key_pool = entry_pool(keys, blocks, state);
  if (!key_pool.defined()) return {};
  const int64_t num_entries = blocks.max_entries;
  if (chosen_TA == nullptr && num_entries <= config.index_topk)
    return blocks.visible_QLN;  // every visible entry is chosen
  Tensor ids_QLA;
  if (replay) {
    ids_QLA = gather_rows(*chosen_TA, layout.block_token_QL);
    ids_QLA = at::where(ids_QLA < 0, num_entries, ids_QLA);
  } else {
    ids_QLA = best_entries(entry_scores(config, profile, weights, input, layout, key_pool), blocks.visible_QLN,
                           config.index_topk);
    if (chosen_TA != nullptr) {
      const Tensor ids = ids_QLA.flatten(0, 1).index_select(0, layout.token_block_T);
      *chosen_TA = at::where(ids == num_entries, -1, ids);
    }
  }
  const Tensor mask =
      at::zeros({layout.num_blocks, layout.block_len, num_entries + 1}, ids_QLA.options().dtype(at::kBool));
  return mask.scatter(2, ids_QLA, true).narrow(2, 0, num_entries);
}

}  // namespace model
