// Wall time per phase of a step. Not thread-safe: a thread that works beside the loop keeps its own Timers and merges
// the values.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "metrics/step_metrics.h"

namespace metrics {

class Timers {
 public:
  explicit Timers(base::Clock clock = {}) : clock_(std::move(clock)) {}

  // Adds the seconds of its lifetime to the phase, also when it ends by an exception. Ends before the Timers.
  class Scope {
   public:
    Scope(Timers& timers, std::string_view phase) : timers_(timers), phase_(phase), start_s_(timers.clock_.now_s()) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { timers_.add(phase_, timers_.clock_.now_s() - start_s_); }

   private:
    Timers& timers_;
    std::string phase_;
    double start_s_;
  };

  // phase: one of the time/ names (metrics/names.h). A phase entered several times adds up.
  [[nodiscard]] Scope time(std::string_view phase) { return Scope(*this, phase); }
  void add(std::string_view phase, double seconds) { seconds_.add(phase, seconds); }

  double seconds(std::string_view phase) const { return seconds_.find(phase).value_or(0); }
  void write_to(StepMetrics& metrics) const { metrics.merge(seconds_); }
  void clear() { seconds_ = StepMetrics(); }

 private:
  base::Clock clock_;
  StepMetrics seconds_;
};

}  // namespace metrics
