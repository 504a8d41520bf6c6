// The table of pure rewards, and who is behind a kind.
#include "rewards/reward.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "rewards/answer_text.h"
#include "rewards/command.h"
#include "rewards/math.h"
#include "rewards/text_match.h"
#include "rewards/url.h"

namespace rewards {
namespace {

constexpr auto kRewards = std::to_array<NamedReward>({
    {"exact", exact, "the whole answer"},
    {"after_last", after_last, "the text after the last separator"},
    {"math_dapo", math_dapo, "DAPO, arXiv 2503.14476: the Answer: line, 1 or -1"},
    {"math_deepscaler", math_deepscaler, "DeepScaleR: the last \\boxed{} after the thought, 1 or 0"},
});

class PureScorer : public Scorer {
 public:
  PureScorer(RewardSettings settings, ScoreFunction function) : settings_(std::move(settings)), function_(function) {}
  Score score(const data::Problem& problem, const data::Sample& sample, const StopAsked&) override {
    return function_(settings_, problem, sample);
  }

 private:
  RewardSettings settings_;
  ScoreFunction function_;
};

bool is_mathematics(std::string_view kind) { return kind.starts_with("math_"); }

}  // namespace

std::span<const NamedReward> all_rewards() { return kRewards; }

const NamedReward* find_reward(std::string_view name) {
  const auto found =
      std::find_if(kRewards.begin(), kRewards.end(), [&](const auto& reward) { return reward.name == name; });
  return found == kRewards.end() ? nullptr : found;
}

void check_settings(const RewardSettings& settings) {
  using base::Code;
  if (settings.kind == "command") {
    if (settings.command.empty() || settings.command[0].empty()) {
      base::fail(Code::invalid_argument,
                 "reward.kind is command, but reward.command names no program: give the program and "
                 "its arguments, for example [\"python3\", \"my_reward.py\"]");
    }
  } else if (settings.kind == "url") {
    if (!settings.url.starts_with("http://") && !settings.url.starts_with("https://")) {
      base::fail(Code::invalid_argument,
                 "reward.kind is url, and reward.url is \"{}\": it must begin with http:// or https://", settings.url);
    }
  } else if (find_reward(settings.kind) == nullptr) {
    std::string known;
    for (const NamedReward& reward : kRewards) known += std::string(reward.name) + ", ";
    base::fail(Code::invalid_argument, "reward.kind is \"{}\": use one of {}command, url", settings.kind, known);
  }
  if (settings.kind == "after_last" && settings.separator.empty()) {
    base::fail(Code::invalid_argument,
               "reward.kind is after_last, and reward.separator is empty: give the text that the "
               "answer follows, or use kind exact");
  }
  if (settings.deadline_s < settings.try_timeout_s) {
    base::fail(Code::invalid_argument,
               "reward.deadline_s ({} s for all tries) is less than reward.try_timeout_s ({} s for one)",
               settings.deadline_s, settings.try_timeout_s);
  }
}

void check_label(const RewardSettings& settings, const data::Problem& problem) {
  if (find_reward(settings.kind) == nullptr) return;  // a command or URL knows what its labels mean
  if (strip(problem.label).empty()) {
    base::fail(
        base::Code::invalid_argument,
        "problem {}: its label is empty, and reward {} can only compare with a label: give it one, or drop the row",
        problem.id, settings.kind);
  }
  if (is_mathematics(settings.kind) && !is_gradable_label(problem.label)) {
    base::fail(base::Code::invalid_argument,
               "problem {}: its label \"{}\" is no finite number and no text that an answer could be", problem.id,
               shown(problem.label));
  }
}

std::unique_ptr<Scorer> make_scorer(const RewardSettings& settings) {
  check_settings(settings);
  if (settings.kind == "command") return std::make_unique<CommandScorer>(settings);
  if (settings.kind == "url") return std::make_unique<UrlScorer>(settings);
  return std::make_unique<PureScorer>(settings, find_reward(settings.kind)->score);
}

}  // namespace rewards
