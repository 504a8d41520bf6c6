// The loss of one microbatch of reinforcement learning, composed of the pure functions beside this file:
//
//   loss = reduce(policy * tis) + kl_loss_coef * reduce(kl) - entropy_coef * reduce(entropy)
//
// Every sum runs over active tokens with weights fixed by totals of the step (loss/reduction.h), so losses and
// gradients of microbatches add up to those of the step.
//
// Letters: N tokens of the microbatch, S samples.
#pragma once
#include "actor/loss/settings.h"
#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;

struct TokenTensors {
  Tensor active_N;  // bool
  Tensor weight_N;  // of the reduction
  Tensor sample_N;  // int64 index of the token's sample, in [0, num_samples)
  int64_t num_samples = 0;
  Tensor advantage_N;
  Tensor lp_new_N;      // of the actor now, with gradient
  Tensor lp_old_N;      // of the actor under the weights that the rollout used, constant
  Tensor lp_rollout_N;  // of the engine, constant; undefined: no importance weights
  Tensor lp_ref_N;      // of the reference policy, constant; undefined: no KL in the loss
  Tensor entropy_N;     // with gradient when it has a bonus; undefined: none
};

struct Objective {
  Tensor loss;  // what backward starts from: a share of the step's loss
  // Shares of the step's values, f64 without gradient, to be added up over microbatches.
  Tensor policy_loss;  // after importance weights
  Tensor kl_loss;      // before its coefficient; undefined without a reference
  Tensor entropy;      // reduced, before its coefficient; undefined without entropy
  // Per token, without gradient; undefined where the part is.
  Tensor policy_N, kl_N, ratio_N, tis_N;
  Tensor ppo_kl_N;       // lp_old - lp_new as the ratio used it
  Tensor clipped_N;      // bool: the clip decided
  Tensor tis_clipped_N;  // bool: a bound decided the importance weight
  Tensor nonfinite_N;    // bool: a log-ratio (to old, to the rollout) was not finite and counted as 0
};

Objective policy_objective(const TokenTensors& tokens, const LossSettings& settings);

// Supervised fine-tuning: reduce(-log_prob).
Tensor sft_objective(const Tensor& lp_N, const Tensor& weight_N, const Tensor& active_N);

}  // namespace actor
