// PPO's clipped surrogate.
#include "actor/loss/policy_loss.h"

#include "actor/loss/reduction.h"

namespace actor {

namespace {
constexpr double kMaxLogRatio =
    20;  // exp(20) = 4.9e8: beyond it a ratio carries no information, and f32 products overflow
}

PolicyTerms clipped_policy_loss(const Tensor& ppo_kl_N, const Tensor& advantage_N, const Tensor& active_N,
                                const ClipBounds& bounds) {
  const Tensor adv_N = select_active(active_N & advantage_N.isfinite(), advantage_N);
  const Tensor ratio_N = (-ppo_kl_N).clamp(-kMaxLogRatio, kMaxLogRatio).exp();
  const Tensor free_N = -ratio_N * adv_N;
  const Tensor bounded_N = -ratio_N.clamp(1 - bounds.low, 1 + bounds.high) * adv_N;
  Tensor loss_N = at::maximum(free_N, bounded_N);
  if (bounds.dual > 0) {
    loss_N = at::where(adv_N < 0, at::minimum(loss_N, -bounds.dual * adv_N), loss_N);
  }
  return {select_active(active_N, loss_N), ratio_N, bounded_N > free_N};
}

}  // namespace actor
