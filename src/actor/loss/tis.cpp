// Truncated importance sampling between rollout and actor.
#include "actor/loss/tis.h"

#include "actor/loss/log_ratio.h"
#include "actor/loss/reduction.h"

namespace actor {

Tensor tis_weights(const Tensor& lp_old_N, const Tensor& lp_rollout_N, const Tensor& active_N,
                   const TisBounds& bounds) {
  at::NoGradGuard no_grad;
  const Tensor ratio_N = token_log_ratio(lp_rollout_N, lp_old_N, active_N).difference_N.exp();
  const Tensor weight_N = bounds.drop_outside
                              ? select_active((ratio_N >= bounds.low) & (ratio_N <= bounds.high), ratio_N)
                              : ratio_N.clamp(bounds.low, bounds.high);
  return select_active(active_N, weight_N);
}

}  // namespace actor
