// The learning rate as a function of how many updates were applied before this one, so that the first update of a
// warm-up has the rate init_lr (0). Pure.
//
//   n <= warmup:  linear from init_lr to lr                      constant:  lr from there on
//   cosine, linear: from lr at the end of the warm-up to min_lr at `decay`, min_lr after
//   warmup_constant_cosine: lr until decay - anneal, then cosine to min_lr at `decay`
//
// Source: Megatron's OptimizerParamScheduler; the last form: spec 5.5.
#pragma once
#include <cstdint>
#include <string>

#include "base/settings.h"

namespace actor {

struct ScheduleSettings {
  std::string style = "constant";
  double init_lr = 0;
  double lr = 1e-6;
  double min_lr = 0;
  int64_t warmup = 0;
  int64_t decay = 0;
  int64_t anneal = 0;

  template <class V>
  void visit(V&& v) {
    v("style", style, "course of the learning rate after the warm-up",
      base::OneOf{"constant", "cosine", "linear", "warmup_constant_cosine"});
    v("init_lr", init_lr, "rate of the first update of a warm-up", base::Range{0, 10});
    v("lr", lr, "highest rate", base::Range{0, 10});
    v("min_lr", min_lr, "rate after the decay", base::Range{0, 10});
    v("warmup", warmup, "updates of linear warm-up", base::Range{0, 1e12});
    v("decay", decay, "update at which the decay ends, counted from the first", base::Range{0, 1e12});
    v("anneal", anneal, "updates of the final cosine of warmup_constant_cosine", base::Range{0, 1e12});
  }

  // Error{invalid_argument} for an unknown style, a decay that ends before it starts, or a floor above lr.
  void check() const;
};

// updates_before: updates applied before this one.
double learning_rate(const ScheduleSettings& settings, int64_t updates_before);

}  // namespace actor
