// A queue of single answers. A batch waits for its own jobs only.
#include "rewards/worker_pool.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "rewards/external.h"

namespace rewards {

struct WorkerPool::Batch {
  std::atomic<bool> stopped = false;
  std::mutex mutex;
  std::condition_variable done;
  size_t left = 0;           // guarded by mutex
  std::exception_ptr error;  // guarded by mutex: a bug of ours in a scorer
};

WorkerPool::WorkerPool(const RewardSettings& settings) : settings_(settings) {
  check_settings(settings_);
  int64_t count = settings_.workers;
  if (find_reward(settings_.kind) != nullptr) {
    count = std::min<int64_t>(count, std::max(1U, std::thread::hardware_concurrency()));
  }
  for (int64_t i = 0; i < count; ++i) {
    threads_.emplace_back(
        [this, scorer = make_scorer(settings_)](const std::stop_token& ending) { work(*scorer, ending); });
  }
}

WorkerPool::~WorkerPool() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

void WorkerPool::work(Scorer& scorer, const std::stop_token& ending) {
  sigset_t all;  // signals are for the main thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, ending, [this] { return !jobs_.empty(); })) {
    const Job job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    Score score;
    try {
      const auto stop = [&] { return job.batch->stopped.load() || ending.stop_requested(); };
      score = scorer.score(*job.problem, *job.sample, stop);
    } catch (...) {
      const std::lock_guard guard(job.batch->mutex);
      if (!job.batch->error) job.batch->error = std::current_exception();
    }
    finish(job, std::move(score));
    lock.lock();
  }
}

void WorkerPool::finish(const Job& job, Score score) {
  *job.result = std::move(score);
  // Notified under the lock: the batch lives on the stack of the waiting thread, which may leave as soon as it can
  // lock.
  const std::lock_guard guard(job.batch->mutex);
  if (--job.batch->left == 0) job.batch->done.notify_all();
}

ScoreTotals WorkerPool::score(std::span<data::Group> groups, const StopAsked& stop) {
  Batch batch;
  for (const data::Group& group : groups) batch.left += group.samples.size();
  std::vector<Score> scores(batch.left);
  {
    const std::lock_guard guard(mutex_);
    size_t i = 0;
    for (const data::Group& group : groups) {
      for (const data::Sample& sample : group.samples) jobs_.push_back({&batch, &group.problem, &sample, &scores[i++]});
    }
  }
  wake_.notify_all();
  {
    std::unique_lock lock(batch.mutex);
    const auto slice = std::chrono::duration<double>(kPollSlice_s);
    while (!batch.done.wait_for(lock, slice, [&] { return batch.left == 0; })) {
      lock.unlock();
      if (!batch.stopped && stop()) {
        batch.stopped = true;
        const std::lock_guard guard(mutex_);
        const auto ours = [&](const Job& job) { return job.batch == &batch; };
        const size_t dropped = std::erase_if(jobs_, ours);
        const std::lock_guard count(batch.mutex);
        batch.left -= dropped;
      }
      lock.lock();
    }
  }
  if (batch.error) std::rethrow_exception(batch.error);
  ScoreTotals totals;
  if (batch.stopped) {
    totals.complete = false;
    return totals;
  }
  return store(groups, std::move(scores));
}

ScoreTotals WorkerPool::store(std::span<data::Group> groups, std::vector<Score> scores) {
  ScoreTotals totals;
  for (const Score& score : scores) {
    if (score.outcome == Outcome::graded) ++totals.graded;
    if (score.outcome == Outcome::no_answer && totals.no_answer++ == 0) totals.first_no_answer = score.note;
    if (score.outcome == Outcome::failed && totals.failed++ == 0) totals.first_failure = score.note;
  }
  if (static_cast<double>(totals.failed) > settings_.max_failed * static_cast<double>(totals.all())) {
    base::fail(
        base::Code::unavailable,
        "reward {}: {} of {} answers could not be scored, more than reward.max_failed = {} allows; the first: {}",
        settings_.kind, totals.failed, totals.all(), settings_.max_failed, totals.first_failure);
  }
  size_t i = 0;
  for (data::Group& group : groups) {
    for (data::Sample& sample : group.samples) {
      sample.reward = scores[i].value;
      sample.reward_note = std::move(scores[i++].note);
    }
  }
  const std::lock_guard guard(mutex_);
  if (totals.all() > 0 && totals.no_answer == totals.all() && !std::exchange(warned_, true)) {
    spdlog::warn(
        "reward {}: none of {} answers had anything to grade (the first: {}). Do the prompt and the reward agree about "
        "the form of the answer?",
        settings_.kind, totals.all(), totals.first_no_answer);
  }
  return totals;
}

}  // namespace rewards
