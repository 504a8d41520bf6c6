// The lightning indexer's choice: which compressed entries a query attends to (spec 4.6).
//
//   score[t, n] = sum over heads, ascending, of weight[t, h] * relu(<q[t, h], k[n]>)
//
// f32, not rounded (decisions 18). The best topk visible entries, higher score first, then lower index; written in
// ascending index. Exact; no gradient.
//
// Letters: T tokens, H index heads, I index_head_dim, B entries, A index_topk.
#pragma once
#include "kernels/layout.h"

namespace kernels {

using tensor::Tensor;

// query [T, H, I] and keys [B, I] as indexed by `entries` (rows of this pass, or of the cache), weights [T, H] -> int32
// [T, A], -1 = none. keys undefined: all -1.
Tensor choose_entries(const Tensor& query_THI, const Tensor& weight_TH, const Tensor& keys_BI, int64_t topk,
                      const Layout& layout, const EntryLayout& entries);

}  // namespace kernels
