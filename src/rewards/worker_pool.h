// Scores whole batches with a fixed number of threads, each with a scorer (a worker process, a connection) of its own
// that lives as long as the pool. Results do not depend on the number of threads or on who finishes first.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rewards/reward.h"

namespace rewards {

struct ScoreTotals {
  int64_t graded = 0, no_answer = 0, failed = 0;
  std::string first_no_answer, first_failure;  // a note of each kind, in the order of the samples
  bool complete = true;                        // false: stopped, and nothing was written into the groups
  int64_t all() const { return graded + no_answer + failed; }
};

// Thread-safe: several batches may be scored at the same time.
class WorkerPool {
 public:
  // Starts settings.workers threads (one per core at most for pure rewards). Errors: those of check_settings.
  explicit WorkerPool(const RewardSettings& settings);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();  // no call may be in progress

  // Fills reward and reward_note of every sample, or of none if stop says true in between (asked every 0.05 s). Errors:
  // unavailable when more than settings.max_failed of the samples could not be scored, naming the first reason. When no
  // sample of the batch had anything to grade, a warning says so once per pool: usually prompt and reward disagree
  // about the form.
  ScoreTotals score(
      std::span<data::Group> groups, const StopAsked& stop = [] { return false; });

 private:
  struct Batch;
  struct Job {
    Batch* batch;
    const data::Problem* problem;
    const data::Sample* sample;
    Score* result;
  };
  void work(Scorer& scorer, const std::stop_token& ending);
  ScoreTotals store(std::span<data::Group> groups, std::vector<Score> scores);
  static void finish(const Job& job, Score score);

  RewardSettings settings_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool warned_ = false;   // guarded by mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace rewards
