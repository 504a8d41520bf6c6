// Figures over all groups that a step collected.
#include "controller/step_figures.h"

#include <algorithm>
#include <limits>

#include "metrics/names.h"

namespace controller {
namespace {

// Fractions of the collected groups with equal rewards: at the best reward seen in the step, and below it.
void add_equal_groups(const Collected& collected, metrics::StepMetrics& figures) {
  double best = -std::numeric_limits<double>::infinity(), solved = 0, unsolved = 0, total = 0;
  const auto each_group = [&](const auto& use) {
    for (const data::Group& group : collected.groups) use(group);
    for (const data::Group& group : collected.dropped) use(group);
  };
  each_group([&](const data::Group& group) {
    for (const data::Sample& sample : group.samples) best = std::max(best, sample.reward);
    ++total;
  });
  if (total == 0) return;
  each_group([&](const data::Group& group) {
    if (equal_rewards(group)) ++(group.samples.front().reward == best ? solved : unsolved);
  });
  figures.set(metrics::kRewardSolved, solved / total);
  figures.set(metrics::kRewardUnsolved, unsolved / total);
}

void add_staleness(const Collected& collected, int64_t trained_version, metrics::StepMetrics& figures) {
  int64_t sum = 0, count = 0, most = 0;
  for (const data::Group& group : collected.groups) {
    for (const data::Sample& sample : group.samples) {
      for (const int64_t version : sample.versions) {
        sum += trained_version - version;
        most = std::max(most, trained_version - version);
        ++count;
      }
    }
  }
  if (count == 0) return;
  figures.set(metrics::kStalenessMean, static_cast<double>(sum) / static_cast<double>(count));
  figures.set(metrics::kStalenessMax, static_cast<double>(most));
}

}  // namespace

metrics::StepMetrics step_figures(int64_t step, const Collected& collected, int64_t trained_version) {
  metrics::StepMetrics figures(step);
  add_equal_groups(collected, figures);
  figures.set(metrics::kRewardFailures, static_cast<double>(collected.scores.failed));
  const size_t num_groups = collected.groups.size() + collected.dropped.size();
  figures.set(metrics::kGroupsCollected, static_cast<double>(num_groups));
  figures.set(metrics::kGroupsDropped, static_cast<double>(collected.dropped.size()));
  figures.set(metrics::kRolloutTokens, static_cast<double>(collected.num_tokens));
  add_staleness(collected, trained_version, figures);
  figures.set(metrics::kTimeGenerate, collected.generate_s);
  figures.set(metrics::kTimeReward, collected.reward_s);
  return figures;
}

}  // namespace controller
