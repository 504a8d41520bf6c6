// The clipped surrogate of PPO at each token, with separate bounds below and above (DAPO's clip-higher) and the dual
// clip.
//
//   rho = exp(clamp(-d, -20, 20))      d = lp_old - lp_new (loss/log_ratio.h)
//   L   = max(-rho A, -clip(rho, 1 - low, 1 + high) A)
//   dual clip, A < 0 only: L = min(L, -dual A)
//
// Letters: N tokens. Sources: PPO, arXiv 1707.06347 eq. 7; DAPO, arXiv 2503.14476; dual clip, arXiv 1912.09729 eq. 4.
#pragma once
#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;

struct ClipBounds {
  double low = 0.2;   // rho is clipped below 1 - low
  double high = 0.2;  // and above 1 + high
  double dual = 0;    // bound of the loss for negative advantages, > 1; 0: no dual clip
};

struct PolicyTerms {
  Tensor loss_N;     // 0 where inactive
  Tensor ratio_N;    // rho; 1 where inactive
  Tensor clipped_N;  // bool: the clip decided the loss, so the token has no gradient
};

// ppo_kl_N from log_ratio.h. advantage_N: an advantage that is not finite counts as 0.
PolicyTerms clipped_policy_loss(const Tensor& ppo_kl_N, const Tensor& advantage_N, const Tensor& active_N,
                                const ClipBounds& bounds);

}  // namespace actor
