// Group statistics in two passes over f64, with compensated sums: rewards with a large common offset lose nothing.
#include "actor/advantage.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/error.h"

namespace actor {

using base::Code;
using base::fail;

namespace {

constexpr double kStdEpsilon = 1e-6;  // added to the std, outside the root (decisions 12)

// Neumaier's compensated sum: the error does not grow with the number of terms.
class Sum {
 public:
  void add(double value) {
    const double total = total_ + value;
    lost_ += std::abs(total_) >= std::abs(value) ? (total_ - total) + value : (value - total) + total_;
    total_ = total;
  }
  double value() const { return total_ + lost_; }

 private:
  double total_ = 0, lost_ = 0;
};

// One reward per rollout, in order of first appearance.
std::vector<double> rewards_by_rollout(std::span<const double> rewards, std::span<const int64_t> rollout) {
  CHECK(rollout.empty() || rollout.size() == rewards.size());
  std::vector<double> unique;
  std::map<int64_t, double> seen;
  for (size_t i = 0; i < rewards.size(); ++i) {
    if (!std::isfinite(rewards[i])) {
      fail(
          Code::invalid_argument,
          "reward {} of a group of {} is {}, but group statistics need finite rewards; give the reward a failure value",
          i, rewards.size(), rewards[i]);
    }
    if (!rollout.empty()) {
      const auto [at, is_new] = seen.emplace(rollout[i], rewards[i]);
      if (!is_new && at->second != rewards[i]) {
        fail(Code::invalid_argument, "the fragments of rollout {} have the rewards {} and {}; they must be equal",
             rollout[i], at->second, rewards[i]);
      }
      if (!is_new) continue;
    }
    unique.push_back(rewards[i]);
  }
  return unique;
}

}  // namespace

Estimator parse_estimator(const std::string& name) {
  if (name == "grpo") return Estimator::grpo;
  if (name == "dr_grpo") return Estimator::dr_grpo;
  if (name == "rloo") return Estimator::rloo;
  fail(Code::invalid_argument, "advantage estimator '{}' is unknown; choose grpo, dr_grpo or rloo", name);
}

Truncated parse_truncated(const std::string& name) {
  if (name == "keep") return Truncated::keep;
  if (name == "penalise") return Truncated::penalise;
  if (name == "mask") return Truncated::mask;
  fail(Code::invalid_argument, "treatment of truncated answers '{}' is unknown; choose keep, penalise or mask", name);
}

GroupStats group_stats(std::span<const double> rewards, std::span<const int64_t> rollout) {
  const std::vector<double> values = rewards_by_rollout(rewards, rollout);
  GroupStats stats;
  stats.count = static_cast<int64_t>(values.size());
  if (values.empty()) return stats;
  Sum total;
  for (double value : values) total.add(value);
  stats.mean = total.value() / static_cast<double>(values.size());
  Sum squares;
  for (double value : values) squares.add((value - stats.mean) * (value - stats.mean));
  stats.std = std::sqrt(squares.value() / static_cast<double>(std::max<size_t>(1, values.size() - 1)));
  stats.equal = std::all_of(values.begin(), values.end(), [&](double value) { return value == values.front(); });
  return stats;
}

std::vector<double> group_advantages(std::span<const double> rewards, Estimator estimator,
                                     std::span<const int64_t> rollout) {
  const GroupStats stats = group_stats(rewards, rollout);
  std::vector<double> advantages(rewards.size(), 0.0);
  if (stats.equal) return advantages;
  const double count = static_cast<double>(stats.count);
  double scale = 1;
  if (estimator == Estimator::grpo) scale = 1 / (stats.std + kStdEpsilon);
  if (estimator == Estimator::rloo) scale = count / (count - 1);  // r - (n mean - r)/(n-1) = (r - mean) n/(n-1)
  for (size_t i = 0; i < rewards.size(); ++i) advantages[i] = (rewards[i] - stats.mean) * scale;
  return advantages;
}

}  // namespace actor
