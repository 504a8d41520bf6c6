// A user's own reward as a command: a program that reads one JSON object per line and answers each with one line (see
// rewards/external.h for the fields). One scorer holds one process. A process that is too slow, ends, prints anything
// else or a line of more than 1 MiB is killed with its process group, and the next try starts a new one.
#pragma once
#include <memory>

#include "base/clock.h"
#include "rewards/child_process.h"
#include "rewards/external.h"

namespace rewards {

class CommandScorer : public Scorer {
 public:
  explicit CommandScorer(RewardSettings settings) : settings_(std::move(settings)) {}
  // The process belongs to the first calling thread: it dies when that thread ends.
  Score score(const data::Problem& problem, const data::Sample& sample, const StopAsked& stop) override;

 private:
  Try attempt(const std::string& request, int64_t id, double timeout_s, const StopAsked& stop);

  RewardSettings settings_;
  base::Clock clock_;
  std::unique_ptr<ChildProcess> child_;
  int64_t next_id_ = 0;
};

}  // namespace rewards
