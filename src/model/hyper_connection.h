// Manifold-constrained hyper-connections: how a layer reads from and writes to the M residual streams (spec 3). All
// f32, one rounding of each result.
//
// Letters: T tokens, M hc_mult, D hidden_size.
#pragma once
#include "model/profile.h"
#include "model/weights.h"

namespace model {

struct HcInput {
  Tensor input_TD;  // what the sub-layer reads, rounded
  Tensor post_TM;   // weight of its output on each stream
  Tensor comb_TMM;  // stream i -> stream j, rows i; near doubly stochastic
};

HcInput hc_pre(const Config& config, const Profile& profile, const HyperConnection& weights, const Tensor& streams_TMD);

// out[j] = post[j] * f + sum over i of comb[i, j] * streams[i]
Tensor hc_post(const Profile& profile, const Tensor& output_TD, const Tensor& streams_TMD, const HcInput& gates);

// One hidden row from the streams, for the head.
Tensor hc_head(const Config& config, const Profile& profile, const HyperConnection& weights, const Tensor& streams_TMD);

// softmax over the last dim, then `iters` column and iters - 1 row normalisations, each sum with eps added (spec 3.2).
// logits [T, M, M] -> [T, M, M]
Tensor sinkhorn(const Tensor& logits_TMM, int64_t iters, double eps);

}  // namespace model
