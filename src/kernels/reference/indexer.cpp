// Scores of each block of queries, and a stable sort.
//
// Letters: Q blocks, L queries per block, H heads, I index_head_dim, N entries, A index_topk.
#include "kernels/reference/indexer.h"

#include <algorithm>
#include <limits>

#include "kernels/reference/query_blocks.h"
#include "kernels/reference/simulate.h"

namespace kernels::reference {
namespace {

// [Q, L, N], invisible entries and NaN at -inf.
Tensor entry_scores(const IndexerInput& input, const QueryBlocks& blocks, const BlockEntries& entries) {
  const Tensor weight_TH = rounded(input.weight_TH * input.scale, input.rounding);
  const Tensor query_QLHI = to_blocks(input.query_THI, blocks), weight_QLH1 = to_blocks(weight_TH, blocks).unsqueeze(3);
  const Tensor keys_QNI = gather_entries(input.keys_BI.reshape({-1, input.keys_BI.size(-1)}), entries);
  const Tensor dots_QLHN = at::bmm(query_QLHI.flatten(1, 2), keys_QNI.transpose(1, 2))
                               .relu_()
                               .view({blocks.size(), blocks.len, input.query_THI.size(1), -1});
  const Tensor score_QLN = (dots_QLHN * weight_QLH1).sum(2);
  return score_QLN.masked_fill(~entries.visible_QLN | score_QLN.isnan(), -std::numeric_limits<double>::infinity());
}

}  // namespace

Tensor choose_entries(const IndexerInput& input, int64_t topk, const Layout& layout, const EntryLayout& entries) {
  const at::NoGradGuard no_grad;
  const auto options = input.query_THI.options().dtype(at::kInt);
  if (!input.keys_BI.defined()) return at::full({layout.num_tokens, topk}, -1, options);
  const QueryBlocks blocks = query_blocks(layout, input.query_THI.device());
  const BlockEntries seen = block_entries(blocks, layout, entries);
  if (seen.count == 0) return at::full({layout.num_tokens, topk}, -1, options);
  const int64_t k = std::min(topk, seen.count);
  // Stable: of equal scores the lower index comes first, a visible entry before those that are not.
  const Tensor score_QLN = entry_scores(input, blocks, seen);
  const Tensor order_QLA =
      std::get<1>(at::sort(score_QLN, /*stable=*/true, /*dim=*/2, /*descending=*/true)).narrow(2, 0, k);
  const Tensor ids_QLA = std::get<0>(at::where(seen.visible_QLN.gather(2, order_QLA), order_QLA, seen.count).sort(2));
  const Tensor known_QLA = ids_QLA.masked_fill(ids_QLA == seen.count, -1);
  return from_blocks(at::constant_pad_nd(known_QLA, {0, topk - k}, -1), blocks).to(at::kInt);
}

}  // namespace kernels::reference
