// The reward workers of a run: one pool for each kind of reward that training and the evaluation sets use.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "controller/evaluation.h"
#include "rewards/worker_pool.h"

namespace controller {

// Thread-safe.
class Judges {
 public:
  // kinds beside settings.kind. Errors: those of rewards::check_settings.
  Judges(const rewards::RewardSettings& settings, std::span<const std::string> kinds);

  // kind empty: reward.kind. Valid as long as the judges.
  ScoreGroups scorer(const std::string& kind = "");

 private:
  std::string default_kind_;
  std::map<std::string, std::unique_ptr<rewards::WorkerPool>> pools_;
};

// What the evaluation sets ask for.
std::vector<std::string> reward_kinds(const EvalSettings& eval);

// The settings for another kind of reward.
rewards::RewardSettings with_kind(rewards::RewardSettings settings, const std::string& kind);

}  // namespace controller
