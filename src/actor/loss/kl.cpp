// Estimates of the KL divergence from samples.
#include "actor/loss/kl.h"

#include "actor/loss/reduction.h"
#include "base/check.h"
#include "base/error.h"

namespace actor {

namespace {

constexpr double kMaxLogRatio = 20, kMaxLowVarKl = 10;

Tensor estimate(const Tensor& log_ratio_N, KlKind kind) {
  if (kind == KlKind::k1) return log_ratio_N;
  if (kind == KlKind::k2) return log_ratio_N * log_ratio_N / 2;
  return (-log_ratio_N).exp() - 1 + log_ratio_N;
}

}  // namespace

KlKind parse_kl_kind(const std::string& name) {
  if (name == "k1") return KlKind::k1;
  if (name == "k2") return KlKind::k2;
  if (name == "k3") return KlKind::k3;
  if (name == "low_var_kl") return KlKind::low_var_kl;
  base::fail(base::Code::invalid_argument, "KL estimate '{}' is unknown; choose k1, k2, k3 or low_var_kl", name);
}

Tensor kl_terms(const Tensor& lp_N, const Tensor& lp_ref_N, const Tensor& active_N, KlKind kind,
                const std::optional<Tensor>& weight_N) {
  Tensor ratio_N = select_active(active_N, lp_N) - select_active(active_N, lp_ref_N);
  if (kind == KlKind::low_var_kl) {
    ratio_N = ratio_N.nan_to_num(0.0, kMaxLogRatio, -kMaxLogRatio).clamp(-kMaxLogRatio, kMaxLogRatio);
  }
  const Tensor factor_N = weight_N ? *weight_N : at::ones_like(ratio_N);
  // What is not finite is replaced before exp sees it: the gradient of a replaced value would be 0 * infinity.
  Tensor usable_N;
  {
    at::NoGradGuard no_grad;
    usable_N = active_N & ratio_N.isfinite() & (estimate(ratio_N, kind) * factor_N).isfinite();
  }
  Tensor kl_N = estimate(select_active(usable_N, ratio_N), kind) * select_active(usable_N, factor_N);
  if (kind == KlKind::low_var_kl) kl_N = kl_N.clamp(-kMaxLowVarKl, kMaxLowVarKl);
  return select_active(usable_N, kl_N);
}

Tensor unbiased_kl_weight(const Tensor& lp_new_N, const Tensor& lp_old_N, const Tensor& active_N) {
  return select_active(active_N, lp_new_N - lp_old_N).exp();
}

std::vector<double> token_rewards(double reward, std::span<const double> kl, const std::vector<bool>& active,
                                  double coef) {
  CHECK(kl.size() == active.size());
  std::vector<double> rewards(kl.size());
  size_t last = kl.size();
  for (size_t t = 0; t < kl.size(); ++t) {
    rewards[t] = -coef * kl[t];
    if (active[t]) last = t;
  }
  CHECK(last < kl.size(), "no active token");
  rewards[last] += reward;
  return rewards;
}

}  // namespace actor
