// Which experts a token goes to, and with what weight (spec 5.1, decisions 6).
//
//   score = sqrt(softplus(l)) | sigmoid(l) | softmax(l);  choice: the best of score + bias, or by token id (hash
//   layers) weight = score of the chosen / their sum (ascending expert id; not for softmax) * factor
//
// f32, not rounded. A token's result depends on its own logits only. The arithmetic: kernels/cpu/router.h. NaN counts
// as the highest score. Weights are NaN where all chosen scores are zero (sqrtsoftplus: every logit below -207).
//
// Letters: T tokens, E experts, A experts per token, V vocab.
#pragma once
#include "kernels/cpu/router.h"
#include "tensor/tensor.h"

namespace kernels {

using cpu::Scoring;
using tensor::Tensor;

struct RouterOptions {
  Scoring scoring = Scoring::sqrtsoftplus;
  int64_t experts_per_token = 1;  // <= cpu::kMostChosen
  bool normalise = true;          // not done for softmax
  double factor = 1;
};

struct Routing {
  Tensor expert_TA;  // int32, ascending ids
  Tensor weight_TA;  // f32
};

// Ids, ascending, by the best scores + bias; higher score first, then lower id.
Tensor best_experts(const Tensor& logits_TE, const Tensor& bias_E, const RouterOptions& options);

// Weights of given choices. Differentiable in the logits.
Tensor expert_weights(const Tensor& logits_TE, const Tensor& expert_TA, const RouterOptions& options);

// Rows of tid2eid [V, A] (int64 or int32; ascending within a row or not) for token ids [T] (int64) -> int32 [T, A]
// ascending. On a CPU, CHECK: ids in [0, V), ids of a row distinct and not negative.
Tensor hashed_experts(const Tensor& tid2eid_VA, const Tensor& ids_T);

}  // namespace kernels
