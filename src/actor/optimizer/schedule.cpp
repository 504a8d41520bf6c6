// Learning-rate schedules.
#include "actor/optimizer/schedule.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace actor {

using base::Code;
using base::fail;

namespace {

int64_t decay_start(const ScheduleSettings& settings) {
  return settings.style == "warmup_constant_cosine" ? settings.decay - settings.anneal : settings.warmup;
}

}  // namespace

void ScheduleSettings::check() const {
  if (style == "constant") return;
  if (style != "cosine" && style != "linear" && style != "warmup_constant_cosine") {
    fail(Code::invalid_argument,
         "schedule style '{}' is unknown; choose constant, cosine, linear or warmup_constant_cosine", style);
  }
  const int64_t start = decay_start(*this);
  if (decay <= start || start < warmup) {
    fail(Code::invalid_argument,
         "schedule {}: the decay would run from update {} to {}, after a warm-up of {}; set decay (and anneal) so that "
         "warmup <= start < end",
         style, start, decay, warmup);
  }
  if (min_lr > lr) fail(Code::invalid_argument, "schedule {}: min_lr ({}) is above lr ({})", style, min_lr, lr);
}

double learning_rate(const ScheduleSettings& settings, int64_t updates_before) {
  const double n = static_cast<double>(updates_before);
  if (settings.warmup > 0 && updates_before <= settings.warmup) {
    return settings.init_lr + (settings.lr - settings.init_lr) * n / static_cast<double>(settings.warmup);
  }
  if (settings.style == "constant") return settings.lr;
  if (updates_before > settings.decay) return settings.min_lr;
  const double start = static_cast<double>(decay_start(settings));
  if (n <= start) return settings.lr;
  const double done = (n - start) / (static_cast<double>(settings.decay) - start);
  const double left = settings.style == "linear" ? 1 - done : 0.5 * (std::cos(std::numbers::pi * done) + 1);
  return settings.min_lr + (settings.lr - settings.min_lr) * left;
}

}  // namespace actor
