// The lightning indexer's choice: which compressed entries a query attends to (spec 4.6).
//
//   score[t, n] = sum over heads, ascending, of round(scale * weight[t, h]) * relu(<q[t, h], k[n]>)
//
// f32, the score not rounded (decisions 18); <q, k> is one chain of fused multiply-adds over I, and so is the sum over
// heads. The best topk visible entries, higher score first, then lower index; written in ascending index. A NaN counts
// as -infinity. Where no more than topk entries are visible all are chosen, whatever their scores. Exact; no gradient.
//
// Letters: T tokens, H index heads, I index_head_dim, B entries, A index_topk.
#pragma once
#include "kernels/layout.h"
#include "kernels/rounding.h"

namespace kernels {

using tensor::Tensor;

struct IndexerInput {
  Tensor query_THI;
  Tensor weight_TH;  // before the scale
  Tensor keys_BI;    // rows of this pass, or all rows of the cache ([S, N, I] will do); undefined: there are none
  double scale = 1;
  Rounding rounding = Rounding::none;  // of the scaled weight
};

// -> int32 [T, A], ascending entry index, -1 = none.
Tensor choose_entries(const IndexerInput& input, int64_t topk, const Layout& layout, const EntryLayout& entries);

}  // namespace kernels
