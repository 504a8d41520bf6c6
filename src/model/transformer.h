// The forward pass of DeepSeek-V4 (spec 2): one definition for training (no cache) and for generation (prefill chunks
// and decode steps over a cache). Differentiable when gradients are on and no cache is given. Runs on the device of its
// weights.
//
// Letters: T tokens, M hc_mult, D hidden_size, V vocab, N rows.
#pragma once
#include "model/pass.h"

namespace model {

// Streams after the last layer, [T, M, D].
Tensor forward_streams(const Pass& pass);
// One layer, from streams to streams.
Tensor forward_layer(const Pass& pass, int64_t layer, const Tensor& streams_TMD);
// Embedding repeated over the streams, [T, M, D].
Tensor embed_streams(const Pass& pass);

// hc_head and the final norm on chosen rows: [N, M, D] -> [N, D].
Tensor final_hidden(const RunWeights& weights, const Profile& profile, const Tensor& streams_NMD);
// f32 logits [N, V] of final hidden rows.
Tensor head_logits(const RunWeights& weights, const Tensor& hidden_ND);

// The MTP block (spec 2.1): streams of the main model and the ids that follow each position -> its own streams; logits
// by mtp_logits. The layout has the same tokens as the pass that made the streams, or a prefix of each span.
Tensor mtp_streams(const Pass& pass, const Tensor& streams_TMD, const Tensor& next_ids_T);
Tensor mtp_logits(const RunWeights& weights, const Profile& profile, const Tensor& mtp_streams_NMD);

}  // namespace model
