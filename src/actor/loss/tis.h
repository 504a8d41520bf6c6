// Truncated importance sampling: a constant weight per token that corrects for the rollout engine having sampled from
// other numbers than the actor computes with (quantised weights, other kernels).
//
//   w = clamp(exp(lp_old - lp_rollout), low, high);   IcePop: w outside [low, high] becomes 0 instead
//
// lp_old: the actor's log-prob under the weights that the rollout used. A log-ratio that is not finite on an active
// token counts as 0, so w = clamp(1) (decisions 15). No gradient. The weight multiplies the policy loss only, and no
// denominator.
//
// Letters: N tokens. Sources: F. Yao et al., "Your efficient RL framework secretly brings you off-policy RL training",
// 2025; IcePop: Ling team, "Small leak can sink a great ship", 2025; reference notes on Miles, 2.4.
#pragma once
#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;

struct TisBounds {
  double low = 0;
  double high = 2;
  bool drop_outside = false;  // IcePop
};

// 0 where inactive.
Tensor tis_weights(const Tensor& lp_old_N, const Tensor& lp_rollout_N, const Tensor& active_N, const TisBounds& bounds);

}  // namespace actor
