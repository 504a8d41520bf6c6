// Attention of one layer: low-rank queries, one shared KV head, sliding window, compressed entries, a sink per head,
// grouped output projection (spec 4).
//
// Letters: T tokens, D hidden_size, Q query blocks, L queries per block, H heads, K head_dim, N keys.
#pragma once
#include "model/cache.h"
#include "model/layout.h"
#include "model/profile.h"
#include "model/weights.h"

namespace model {

struct AttentionCall {
  const Config& config;
  const Profile& profile;
  const Layout& layout;
  LayerKind kind = LayerKind::window;
  LayerCache* cache = nullptr;
  Tensor* entries_TA = nullptr;  // CSA: the indexer's choice, recorded or replayed
  bool replay = false;
};

// input [T, D], the normed input of the layer -> [T, D]
Tensor attention(const AttentionCall& call, const AttentionWeights& weights, const Tensor& input_TD);

// softmax(scale * q k) v with k = v = keys, masked, and a sink that takes weight but has no value; the division comes
// last (spec 4.7, 4.9, decisions 16). query [Q, L, H, K], keys [Q, N, K], mask bool [Q, L, N] with at least one key per
// query, sink [H] -> [Q, L, H, K], not rounded.
Tensor attend(const Tensor& query_QLHK, const Tensor& keys_QNK, const Tensor& mask_QLN, const Tensor& sink_H,
              double scale);

}  // namespace model
