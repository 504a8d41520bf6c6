// Mixture of experts: hash-routed or score-routed experts with clamped SwiGLU, and the shared expert (spec 5).
//
// Letters: T tokens, D hidden_size.
#pragma once
#include "kernels/router.h"
#include "model/pass.h"

namespace model {

// input [T, D], the normed input; ids [T] of the tokens, for hash-routed layers -> [T, D]
Tensor moe(const BlockCall& call, const MoeWeightsOf<Matrix>& weights, const Tensor& input_TD, const Tensor& ids_T);

kernels::RouterOptions router_options(const Config& config);

}  // namespace model
