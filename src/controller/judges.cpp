// Pools by the kind of their reward.
#include "controller/judges.h"

#include "base/check.h"

namespace controller {

rewards::RewardSettings with_kind(rewards::RewardSettings settings, const std::string& kind) {
  if (!kind.empty()) settings.kind = kind;
  return settings;
}

std::vector<std::string> reward_kinds(const EvalSettings& eval) {
  std::vector<std::string> kinds;
  for (const EvalSetSettings& set : eval.sets) kinds.push_back(set.reward_kind);
  return kinds;
}

Judges::Judges(const rewards::RewardSettings& settings, std::span<const std::string> kinds)
    : default_kind_(settings.kind) {
  pools_[settings.kind] = std::make_unique<rewards::WorkerPool>(settings);
  for (const std::string& kind : kinds) {
    std::unique_ptr<rewards::WorkerPool>& pool = pools_[kind.empty() ? settings.kind : kind];
    if (!pool) pool = std::make_unique<rewards::WorkerPool>(with_kind(settings, kind));
  }
}

ScoreGroups Judges::scorer(const std::string& kind) {
  const auto pool = pools_.find(kind.empty() ? default_kind_ : kind);
  CHECK(pool != pools_.end(), "no pool for reward {}", kind);
  return [pool = pool->second.get()](std::span<data::Group> groups, const StopAsked& stop) {
    return pool->score(groups, stop);
  };
}

}  // namespace controller
