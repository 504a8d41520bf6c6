// The forward pass of DeepSeek-V4 (spec 2): one definition for training (no cache) and for generation (prefill chunks
// and decode steps over a cache). Differentiable when gradients are on and no cache is given. Runs on the device of its
// weights.
//
// Letters: T tokens, M hc_mult, D hidden_size, V vocab, N rows.
#pragma once
#include <vector>

#include "model/cache.h"
#include "model/layout.h"
#include "model/profile.h"
#include "model/weights.h"

namespace model {

// Discrete choices of one pass, per layer: recorded, or replayed instead of choosing (routing replay; layer-by-layer
// tests).
struct Choices {
  bool replay = false;
  std::vector<Tensor>
      experts_TA;  // int64 [T, experts per token], ascending ids; the MTP block's after the last layer's
  std::vector<Tensor>
      entries_TN;  // int64 [T, index_topk], ascending entry index, -1 = none; undefined where nothing is chosen
};

struct Pass {
  const Weights& weights;  // in the form run_weights(.., profile) makes
  Profile profile;
  const Layout& layout;
  Tensor ids_T;            // int64 [T], on the device of the weights
  Cache* cache = nullptr;  // written in place; only without gradients
  Choices* choices = nullptr;
  // Training: keep only the streams between layers, run each layer again in backward. weights and layout must live
  // until then.
  bool recompute = false;
};

// Streams after the last layer, [T, M, D].
Tensor forward_streams(const Pass& pass);
// One layer, from streams to streams.
Tensor forward_layer(const Pass& pass, int64_t layer, const Tensor& streams_TMD);
// Embedding repeated over the streams, [T, M, D].
Tensor embed_streams(const Pass& pass);

// hc_head and the final norm on chosen rows: [N, M, D] -> [N, D].
Tensor final_hidden(const Weights& weights, const Profile& profile, const Tensor& streams_NMD);
// f32 logits [N, V] of final hidden rows.
Tensor head_logits(const Weights& weights, const Tensor& hidden_ND);

// The MTP block (spec 2.1): streams of the main model and the ids that follow each position -> its own streams; logits
// by mtp_logits. The layout has the same tokens as the pass that made the streams, or a prefix of each span.
Tensor mtp_streams(const Pass& pass, const Tensor& streams_TMD, const Tensor& next_ids_T);
Tensor mtp_logits(const Weights& weights, const Profile& profile, const Tensor& mtp_streams_NMD);

}  // namespace model
