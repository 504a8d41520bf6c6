// The figures of a training step, gathered over its microbatches: sums in f64, divided once at the end by totals of the
// step, so that no mean depends on the packing and no maximum is averaged. Names: metrics/names.h.
//
// The parts of the loss are reported with their coefficients: loss/total = loss/policy + loss/kl - loss/entropy_bonus.
// With several updates per step, losses and gradient norms are means over the updates; token figures are means over the
// tokens of all updates.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "actor/loss/objective.h"
#include "data/sample.h"
#include "metrics/statistics.h"

namespace actor {

using Metrics = std::map<std::string, double>;

// Rewards, lengths and truncation of the samples trained on, whatever is masked. Nothing for no samples.
void add_sample_metrics(std::span<const data::Group> groups, Metrics& metrics);

// |actor log-prob - rollout log-prob| over tokens: mean, p99, max. Differences that are not finite are left out
// (policy/nonfinite_tokens counts them).
class Gap {
 public:
  void add(const std::vector<float>& lp_actor, const std::vector<float>& lp_rollout);
  void report(Metrics& metrics) const;  // nothing without tokens
 private:
  metrics::Distribution values_;
};

class StepSums {
 public:
  void add(const Objective& objective, const TokenTensors& tokens, const LossSettings& settings);
  void add_update(double grad_norm, double lr, bool skipped);
  void report(Metrics& metrics) const;

  int64_t updates() const { return updates_; }
  int64_t skipped() const { return skipped_; }

 private:
  double tokens_ = 0, policy_loss_ = 0, kl_loss_ = 0, entropy_bonus_ = 0;
  double entropy_ = 0, clipped_ = 0, ppo_kl_ = 0, nonfinite_ = 0, tis_ = 0, tis_clipped_ = 0, grad_norm_ = 0, lr_ = 0;
  bool has_kl_ = false, has_bonus_ = false, has_entropy_ = false, has_tis_ = false;
  int64_t updates_ = 0, skipped_ = 0, finite_norms_ = 0;
};

}  // namespace actor
