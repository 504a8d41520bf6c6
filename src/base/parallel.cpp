// The set of threads, and how a job is handed to those that are awake.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/check.h"

namespace base {
namespace {

// Hints to the core that this is a wait.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

struct Job {
  detail::Body body;
  const void* context;
  int64_t count, chunk;
  std::atomic<int64_t> next = 0;

  void work() {
    for (int64_t begin = next.fetch_add(chunk); begin < count; begin = next.fetch_add(chunk)) {
      body(context, begin, std::min(begin + chunk, count));
    }
  }
};

thread_local bool inside_a_body = false;

class Threads {
 public:
  explicit Threads(int count) { start(count); }
  ~Threads() { stop(); }

  int count() const { return static_cast<int>(workers_.size()) + 1; }

  void resize(int count) {
    stop();
    start(count);
  }

  // False: another caller has the threads.
  bool run(Job& job) {
    if (busy_.exchange(true)) return false;
    job_.store(&job);
    turn_.fetch_add(1);
    if (asleep_.load() > 0) turn_.notify_all();
    job.work();
    job_.store(nullptr);  // who comes now finds nothing; who has come is counted in working_
    for (int tries = 0; working_.load() > 0; ++tries) {
      tries < kSpins ? pause() : std::this_thread::yield();
    }
    busy_.store(false);
    return true;
  }

 private:
  // 0.1 to 0.2 ms: longer than what one thread does alone between two kernels of a decode step (with a fifth of it two
  // threads slept through most of their work), short for whoever else wants the core.
  static constexpr int kSpins = 8000;

  void start(int count) {
    CHECK(count >= 1, "{} threads", count);
    stopping_.store(false);
    const uint32_t turn = turn_.load();
    for (int i = 1; i < count; ++i) workers_.emplace_back([this, turn] { serve(turn); });
  }

  void stop() {
    stopping_.store(true);
    turn_.fetch_add(1);
    turn_.notify_all();
    workers_.clear();
  }

  void serve(uint32_t seen) {
    inside_a_body = true;
    while (true) {
      for (int tries = 0; turn_.load() == seen && tries < kSpins; ++tries) pause();
      if (turn_.load() == seen) {
        asleep_.fetch_add(1);
        turn_.wait(seen);
        asleep_.fetch_sub(1);
      }
      seen = turn_.load();
      if (stopping_.load()) return;
      working_.fetch_add(1);
      if (Job* job = job_.load()) job->work();
      working_.fetch_sub(1);
    }
  }

  std::vector<std::jthread> workers_;
  std::atomic<bool> busy_ = false, stopping_ = false;
  std::atomic<Job*> job_ = nullptr;
  std::atomic<uint32_t> turn_ = 0;
  std::atomic<int> asleep_ = 0, working_ = 0;
};

Threads& threads() {
  static Threads all(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  return all;
}

}  // namespace

int num_threads() { return threads().count(); }

void set_num_threads(int count) {
  if (count != num_threads()) threads().resize(count);
}

void detail::parallel_for(int64_t count, int64_t grain, Body body, const void* context) {
  CHECK(grain >= 1, "grain {}", grain);
  if (count <= 0) return;
  if (count <= grain || inside_a_body || num_threads() == 1) return body(context, 0, count);
  // Four ranges a thread: enough to even out threads that others slow down.
  const int64_t ranges = 4 * num_threads(), grains = (count + grain - 1) / grain;
  Job job{body, context, count, (grains + ranges - 1) / ranges * grain};
  inside_a_body = true;
  const bool ran = threads().run(job);
  inside_a_body = false;
  if (!ran) body(context, 0, count);
}

}  // namespace base
