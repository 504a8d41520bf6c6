// Attention of one layer: low-rank queries, one shared KV head, sliding window, compressed entries, a sink per head,
// grouped output projection (spec 4). The kernels do the arithmetic; here is their order.
//
// Letters: T tokens, D hidden_size, A index_topk.
#pragma once
#include "model/pass.h"

namespace model {

// input [T, D], the normed input of the layer -> [T, D]
Tensor attention(const BlockCall& call, const AttentionWeightsOf<Matrix>& weights, const Tensor& input_TD);

}  // namespace model
