// Log-ratios with the rule for values that are not finite.
#include "actor/loss/log_ratio.h"

#include "actor/loss/reduction.h"

namespace actor {

namespace {

LogRatio keep_finite(const Tensor& difference_N, const Tensor& active_N) {
  const Tensor finite_N = difference_N.isfinite();
  return {select_active(active_N & finite_N, difference_N), active_N & ~finite_N};
}

}  // namespace

LogRatio token_log_ratio(const Tensor& lp_new_N, const Tensor& lp_old_N, const Tensor& active_N) {
  return keep_finite(lp_old_N - lp_new_N, active_N);
}

LogRatio sequence_log_ratio(const Tensor& lp_new_N, const Tensor& lp_old_N, const Tensor& active_N,
                            const Tensor& sample_N, int64_t num_samples) {
  const Tensor difference_N = select_active(active_N, lp_old_N - lp_new_N);
  const Tensor zero_S = at::zeros({num_samples}, difference_N.options());
  const Tensor count_S = zero_S.index_add(0, sample_N, active_N.to(difference_N.scalar_type())).clamp_min(1);
  const Tensor mean_S = zero_S.index_add(0, sample_N, difference_N) / count_S;
  return keep_finite(mean_S.index_select(0, sample_N), active_N);
}

}  // namespace actor
