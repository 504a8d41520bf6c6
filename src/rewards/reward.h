// What a reward is: a score for one answer to one problem, with the reason in words. Rewards that need only the texts
// are pure functions in one plain table (find_reward); a user's own reward is a command (rewards/command.h) or a URL
// (rewards/url.h). A scorer never throws because of what a problem or an answer contains: what cannot be graded gets a
// value and a note. Adding a reward: one file with a ScoreFunction, one row in kRewards (reward.cpp), its name in
// RewardSettings::visit.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"
#include "data/sample.h"

namespace rewards {

// graded: an answer was found and judged. no_answer: there was nothing to judge (the value is that of a wrong answer).
// failed: the reward itself could not be computed (deadline, crash, bad reply); the value is
// RewardSettings::failure_value.
enum class Outcome { graded, no_answer, failed };

struct Score {
  double value = 0;  // finite; an answer counts as solved at 1 or more (metrics/pass_at_k.h)
  std::string note;  // what was extracted and compared, or why nothing could be
  Outcome outcome = Outcome::graded;
};

struct RewardSettings {
  std::string kind = "exact";
  std::string separator = ";";
  bool require_stop = false;
  bool strict_box = false;
  bool require_thought = false;
  std::vector<std::string> command;
  std::string url;
  int64_t workers = 4;
  double try_timeout_s = 10;
  double deadline_s = 30;
  int64_t retries = 2;
  double backoff_s = 0.25;
  double failure_value = 0;
  double max_failed = 0.5;

  template <class V>
  void visit(V&& v) {
    v("kind", kind, "how an answer is scored",
      base::OneOf{"exact", "after_last", "math_dapo", "math_deepscaler", "command", "url"});
    v("separator", separator, "kind after_last: the answer is the text after the last one of these");
    v("require_stop", require_stop,
      "score only answers that ended by themselves; one cut off by a limit counts as wrong");
    v("strict_box", strict_box, "kind math_dapo: the answer is the last \\boxed{} instead of the Answer: line");
    v("require_thought", require_thought,
      "kinds math_*: an answer without </think> counts as wrong even if the prompt opened no thought");
    v("command", command, "kind command: program and arguments of a worker that reads and writes JSON lines");
    v("url", url, "kind url: http or https address that takes a POST with JSON for each answer");
    v("workers", workers, "answers scored at the same time; for kind command, worker processes", base::Range{1, 1024},
      base::Resume::harmless);
    v("try_timeout_s", try_timeout_s, "seconds for one try of a command or URL; a command's first includes its start",
      base::Range{0.01, 3600}, base::Resume::harmless);
    v("deadline_s", deadline_s, "seconds for one answer by command or URL, all tries together", base::Range{0.01, 7200},
      base::Resume::harmless);
    v("retries", retries, "further tries of a command or URL after one that failed", base::Range{0, 100},
      base::Resume::harmless);
    v("backoff_s", backoff_s, "seconds before the first retry; doubles with each", base::Range{0, 600},
      base::Resume::harmless);
    v("failure_value", failure_value, "score of an answer that a command or URL could not score",
      base::Range{-1e6, 1e6});
    v("max_failed", max_failed, "stop the run when more than this fraction of a batch got the failure value",
      base::Range{0, 1}, base::Resume::harmless);
  }
};

// Pure: the same texts give the same score, in any thread, with no state.
using ScoreFunction = Score (*)(const RewardSettings& settings, const data::Problem& problem,
                                const data::Sample& sample);

struct NamedReward {
  std::string_view name;
  ScoreFunction score;
  std::string_view source;
};

// All pure rewards; and one by name, or nullptr.
std::span<const NamedReward> all_rewards();
const NamedReward* find_reward(std::string_view name);

// Asked often by whatever waits; true makes it give up. Callable from any thread.
using StopAsked = std::function<bool()>;

// One scoring worker: used by one thread at a time (rewards/worker_pool.h makes one for each of its threads).
class Scorer {
 public:
  virtual ~Scorer() = default;
  // Returns within RewardSettings::deadline_s (plus the time to kill a worker), or within 0.1 s after stop says true
  // (then with Outcome::failed).
  virtual Score score(const data::Problem& problem, const data::Sample& sample, const StopAsked& stop) = 0;
};

// The scorer of settings.kind. Errors: those of check_settings.
std::unique_ptr<Scorer> make_scorer(const RewardSettings& settings);

// Error{invalid_argument} for settings that contradict each other: an unknown kind, kind command without a command, a
// URL that is not http(s), a deadline shorter than a try.
void check_settings(const RewardSettings& settings);

// To be called once for each problem when data are loaded, so that a label that can never be matched ends the start,
// not the run. Error{invalid_argument} names the problem.
void check_label(const RewardSettings& settings, const data::Problem& problem);

}  // namespace rewards
