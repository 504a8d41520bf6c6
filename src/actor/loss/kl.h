// Distance from the reference policy, estimated at each sampled token, for the loss or for the reward.
//
//   r = lp - lp_ref:  k1 = r,  k2 = r^2 / 2,  k3 = exp(-r) - 1 + r,
//   low_var_kl = k3 with r clamped to +-20 first and the result to +-10
//
// A value that is not finite counts as 0, without gradient (low_var_kl clamps an infinite r first; NaN counts as 0).
// Letters: N tokens. Source: J. Schulman, "Approximating KL divergence", 2020; reference notes on Miles, 2.4.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;

enum class KlKind { k1, k2, k3, low_var_kl };
// Error{invalid_argument} for another name.
KlKind parse_kl_kind(const std::string& name);

// 0 where inactive. weight_N: factor of each value, through which a gradient may flow (unbiased_kl_weight).
Tensor kl_terms(const Tensor& lp_N, const Tensor& lp_ref_N, const Tensor& active_N, KlKind kind,
                const std::optional<Tensor>& weight_N = std::nullopt);

// exp(lp_new - lp_old), unclamped, with gradient: makes the gradient of the mean KL unbiased for samples of the old
// policy.
Tensor unbiased_kl_weight(const Tensor& lp_new_N, const Tensor& lp_old_N, const Tensor& active_N);

// KL in the reward: -coef * kl at each token, plus the reward at the last active one; their sum over the active tokens
// is the score that group statistics then compare. active: one flag per token, at least one set.
std::vector<double> token_rewards(double reward, std::span<const double> kl, const std::vector<bool>& active,
                                  double coef);

}  // namespace actor
