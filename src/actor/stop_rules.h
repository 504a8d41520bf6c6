// When a run should stop by itself instead of burning machines: updates that fail again and again, an actor that no
// longer agrees with its rollout, a policy that collapsed. Values only; the controller decides what to do with the
// message.
#pragma once
#include <deque>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/settings.h"

namespace actor {

struct StopSettings {
  int64_t max_skipped = 5;
  double max_gap = 0.5;
  int64_t reward_window = 10;
  double reward_collapse = 0.25;

  template <class V>
  void visit(V&& v) {
    v("max_skipped", max_skipped, "updates skipped in a row before the run stops; 0: never", base::Range{0, 1e9});
    v("max_gap", max_gap, "mean |actor - rollout log-prob| of a step that stops the run, in nats; 0: never",
      base::Range{0, 1e6});
    v("reward_window", reward_window, "steps over which the reward is averaged for reward_collapse",
      base::Range{1, 1e6});
    v("reward_collapse", reward_collapse,
      "stop when the averaged reward falls below this fraction of its best value (only while that is positive); 0: "
      "never",
      base::Range{0, 1});
  }
};

// What a step tells the rules; absent: not measured.
struct StopFacts {
  int64_t updates = 0, skipped = 0;  // tried in this step, and of these skipped as not finite
  std::optional<double> gap_mean, reward_mean;
};

class StopRules {
 public:
  explicit StopRules(const StopSettings& settings) : settings_(settings) {}

  // The reason to stop after this step, with the step and what to look at; nothing while all is well. Called once per
  // step.
  std::optional<std::string> observe(int64_t step, const StopFacts& facts);

  base::Json state() const;
  // Errors: corruption for a document that state() did not write.
  void load(const base::Json& state, const std::string& where);

 private:
  std::optional<std::string> observe_reward(int64_t step, double reward);

  StopSettings settings_;
  int64_t skipped_in_row_ = 0;
  std::deque<double> rewards_;
  std::optional<double> best_;  // highest mean of a full window
};

}  // namespace actor
