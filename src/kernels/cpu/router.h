// Scores of experts, the choice of the best, and the weights of the chosen. Torch-free.
//
//   sqrtsoftplus: exp(l / 2) for l < -30, else sqrt(log1p(exp(-|l|)) + max(l, 0)); sigmoid; softmax (the exponentials
//   summed by ascending expert)
//
// A token's result depends on its own logits only. Letters: T tokens, E experts, A experts per token.
#pragma once
#include <cstdint>

namespace kernels::cpu {

enum class Scoring { sqrtsoftplus, sigmoid, softmax };

inline constexpr int64_t kMostChosen = 64;  // A is at most this

struct RouterInput {
  const float* logits = nullptr;  // [T, E]
  int64_t tokens = 0, experts = 0, per_token = 0;
  Scoring scoring = Scoring::sqrtsoftplus;
  bool normalise = true;  // not done for softmax
  float factor = 1;
};

// expert [T, A]: ascending ids of the highest score + bias [E]. Higher first, then lower id; NaN counts as highest.
void best_experts(const RouterInput& input, const float* bias, int32_t* expert);

// weight [T, A]: (score / sum of the chosen scores in the order of `expert`) * factor. expert [T, A], each in [0, E).
void expert_weights(const RouterInput& input, const int32_t* expert, float* weight);

// dlogits [T, E], all of it written: zero for experts that were not chosen (but for softmax).
void expert_weights_gradient(const RouterInput& input, const int32_t* expert, const float* dweight, float* dlogits);

}  // namespace kernels::cpu
