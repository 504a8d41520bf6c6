// Mixture of experts: hash-routed or score-routed experts with clamped SwiGLU, and the shared expert (spec 5).
//
// Letters: T tokens, D hidden_size, E experts, A experts per token, F moe_intermediate_size, P pairs (token, expert) =
// T * A.
#pragma once
#include "model/profile.h"
#include "model/weights.h"

namespace model {

struct Routing {
  Tensor expert_TA;  // int64, ascending ids
  Tensor weight_TA;  // f32
};

// chosen: nullptr, or where the choice is recorded; replay: take it from there instead.
Routing route(const Config& config, const MoeWeights& weights, const Tensor& input_TD, const Tensor& ids_T,
              Tensor* chosen_TA, bool replay);

// Sum over the chosen experts in ascending id, then the shared expert, f32, rounded once. [T, D] -> [T, D]
Tensor moe(const Config& config, const Profile& profile, const MoeWeights& weights, const Tensor& input_TD,
           const Routing& routing);

// y[p] = weight[e(p)] x[p] for rows sorted by expert: input [P, K], weight [E, N, K], ends int32 [E] (one past each
// expert's last row) -> [P, N]. Empty experts are fine. Nothing is read back to the host.
Tensor grouped_linear(const Tensor& input_PK, const Tensor& weight_ENK, const Tensor& ends_E);

}  // namespace model
