// The rules and their messages.
#include "actor/stop_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace actor {

std::optional<std::string> StopRules::observe(int64_t step, const StopFacts& facts) {
  if (facts.updates > 0) skipped_in_row_ = facts.skipped == facts.updates ? skipped_in_row_ + facts.skipped : 0;
  // The reward is observed first: its window must advance whichever rule speaks.
  std::optional<std::string> reason;
  if (facts.reward_mean) reason = observe_reward(step, *facts.reward_mean);
  if (settings_.max_skipped > 0 && skipped_in_row_ >= settings_.max_skipped) {
    reason = fmt::format(
        "step {}: {} updates in a row had a gradient that is not finite and were skipped (stop.max_skipped {}). Look "
        "at "
        "policy/grad_norm and policy/nonfinite_tokens of the steps before, at the samples of this step in rollouts/, "
        "and try a "
        "lower learning rate",
        step, skipped_in_row_, settings_.max_skipped);
  }
  if (settings_.max_gap > 0 && facts.gap_mean && *facts.gap_mean > settings_.max_gap) {
    reason = fmt::format(
        "step {}: the log-probs of actor and rollout differ by {:.3g} nats on average (stop.max_gap {}). Look at "
        "gap/p99 and "
        "gap/max of the steps before, at the profiles of both sides, and whether the rollout serves the version it "
        "should",
        step, *facts.gap_mean, settings_.max_gap);
  }
  return reason;
}

std::optional<std::string> StopRules::observe_reward(int64_t step, double reward) {
  rewards_.push_back(reward);
  const size_t window = static_cast<size_t>(settings_.reward_window);
  while (rewards_.size() > window) rewards_.pop_front();
  if (rewards_.size() < window) return std::nullopt;
  const double mean = std::accumulate(rewards_.begin(), rewards_.end(), 0.0) / static_cast<double>(window);
  best_ = std::max(best_.value_or(mean), mean);
  if (*best_ <= 0 || mean >= settings_.reward_collapse * *best_) return std::nullopt;
  return fmt::format(
      "step {}: the mean reward of the last {} steps is {:.3g}, below {} of its best, {:.3g} (stop.reward_collapse). "
      "Look at the "
      "samples in rollouts/, at policy/kl, policy/entropy and response/truncated; go back to the best checkpoint with "
      "a lower "
      "learning rate",
      step, window, mean, settings_.reward_collapse, *best_);
}

base::Json StopRules::state() const {
  base::Json json{{"skipped_in_row", skipped_in_row_}, {"rewards", base::Json::array()}, {"best", nullptr}};
  for (const double reward : rewards_) json["rewards"].push_back(reward);
  if (best_) json["best"] = *best_;
  return json;
}

void StopRules::load(const base::Json& state, const std::string& where) {
  try {
    const int64_t skipped = state.at("skipped_in_row").get<int64_t>();
    const auto rewards = state.at("rewards").get<std::deque<double>>();
    const base::Json& best = state.at("best");
    best_ = best.is_null() ? std::nullopt : std::optional<double>(best.get<double>());
    skipped_in_row_ = skipped;
    rewards_ = rewards;
  } catch (const base::Json::exception& error) {
    base::fail(base::Code::corruption, "{}: state of the stop rules: {}", where, error.what());
  }
}

}  // namespace actor
