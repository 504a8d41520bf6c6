// Sums over a step and the figures made from them.
#include "actor/step_metrics.h"

#include <cmath>

#include "metrics/names.h"

namespace actor {

namespace {

void put(Metrics& metrics, std::string_view name, double value) { metrics[std::string(name)] = value; }

double active_sum(const Tensor& value_N, const Tensor& active_N) {
  return at::where(active_N, value_N.detach().to(at::kDouble), at::zeros({}, value_N.options().dtype(at::kDouble)))
      .sum()
      .item<double>();
}

}  // namespace

void add_sample_metrics(std::span<const data::Group> groups, Metrics& metrics) {
  metrics::Distribution rewards, lengths;
  double truncated = 0;
  for (const data::Group& group : groups) {
    for (const data::Sample& sample : group.samples) {
      rewards.add(sample.reward);
      lengths.add(static_cast<double>(sample.response_ids.size()));
      truncated += sample.finish == data::FinishReason::length ? 1 : 0;
    }
  }
  if (rewards.size() == 0) return;
  put(metrics, metrics::kRewardMean, rewards.summary().mean);
  put(metrics, metrics::kRewardStd, rewards.summary().std);
  put(metrics, metrics::kResponseLengthMean, lengths.summary().mean);
  put(metrics, metrics::kResponseLengthMax, lengths.summary().max);
  put(metrics, metrics::kResponseTruncated, truncated / static_cast<double>(rewards.size()));
}

void Gap::add(const std::vector<float>& lp_actor, const std::vector<float>& lp_rollout) {
  CHECK(lp_actor.size() == lp_rollout.size());
  for (size_t t = 0; t < lp_actor.size(); ++t) {
    values_.add(std::abs(static_cast<double>(lp_actor[t]) - static_cast<double>(lp_rollout[t])));
  }
}

void Gap::report(Metrics& metrics) const {
  const metrics::Summary gap = values_.summary();
  if (gap.count == 0) return;
  put(metrics, metrics::kGapMean, gap.mean);
  put(metrics, metrics::kGapP99, gap.p99);
  put(metrics, metrics::kGapMax, gap.max);
}

void StepSums::add(const Objective& objective, const TokenTensors& tokens, const LossSettings& settings) {
  tokens_ += tokens.active_N.sum().item<double>();
  policy_loss_ += objective.policy_loss.item<double>();
  clipped_ += active_sum(objective.clipped_N, tokens.active_N);
  ppo_kl_ += active_sum(objective.ppo_kl_N, tokens.active_N);
  nonfinite_ += active_sum(objective.nonfinite_N, tokens.active_N);
  if (objective.kl_loss.defined()) {
    has_kl_ = true;
    kl_loss_ += settings.kl_loss_coef * objective.kl_loss.item<double>();
  }
  if (objective.entropy.defined()) {
    has_entropy_ = true;
    has_bonus_ = settings.entropy_coef > 0;
    entropy_bonus_ += settings.entropy_coef * objective.entropy.item<double>();
    entropy_ += active_sum(tokens.entropy_N, tokens.active_N);
  }
  if (objective.tis_N.defined()) {
    has_tis_ = true;
    tis_ += active_sum(objective.tis_N, tokens.active_N);
    tis_clipped_ += active_sum(objective.tis_clipped_N, tokens.active_N);
  }
}

void StepSums::add_update(double grad_norm, double lr, bool skipped) {
  ++updates_;
  skipped_ += skipped ? 1 : 0;
  lr_ = lr;
  if (std::isfinite(grad_norm)) {
    ++finite_norms_;
    grad_norm_ += grad_norm;
  }
}

void StepSums::report(Metrics& metrics) const {
  if (updates_ == 0) return;
  const double updates = static_cast<double>(updates_);
  put(metrics, metrics::kLossPolicy, policy_loss_ / updates);
  if (has_kl_) put(metrics, metrics::kLossKl, kl_loss_ / updates);
  if (has_bonus_) put(metrics, metrics::kLossEntropyBonus, entropy_bonus_ / updates);
  put(metrics, metrics::kLossTotal, (policy_loss_ + kl_loss_ - entropy_bonus_) / updates);
  if (has_entropy_) put(metrics, metrics::kPolicyEntropy, entropy_ / tokens_);
  put(metrics, metrics::kPolicyClipFraction, clipped_ / tokens_);
  put(metrics, metrics::kPolicyKl, ppo_kl_ / tokens_);
  put(metrics, metrics::kPolicyNonfinite, nonfinite_);
  put(metrics, metrics::kPolicySkipped, static_cast<double>(skipped_));
  put(metrics, metrics::kPolicyLearningRate, lr_);
  if (finite_norms_ > 0) put(metrics, metrics::kPolicyGradNorm, grad_norm_ / static_cast<double>(finite_norms_));
  if (has_tis_) {
    put(metrics, metrics::kTisMean, tis_ / tokens_);
    put(metrics, metrics::kTisClipFraction, tis_clipped_ / tokens_);
  }
}

}  // namespace actor
