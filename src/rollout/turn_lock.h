// A lock that is served in order of arrival. The engine's step loop takes it again as soon as it has let it go; with a
// plain mutex that loop could keep a weight update or a pause waiting for ever.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace rollout {

class TurnLock {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    const uint64_t turn = next_++;
    changed_.wait(guard, [&] { return serving_ == turn; });
  }
  void unlock() {
    const std::lock_guard guard(mutex_);
    ++serving_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0, serving_ = 0;
};

}  // namespace rollout
