// Settings of an optimizer: AdamW, its learning-rate schedule and the limit of the gradient norm.
#pragma once
#include "actor/optimizer/adamw.h"
#include "actor/optimizer/schedule.h"

namespace actor {

struct OptimizerSettings {
  AdamWSettings adamw;
  ScheduleSettings schedule;
  double max_grad_norm = 1;

  template <class V>
  void visit(V&& v) {
    adamw.visit(v);
    v("max_grad_norm", max_grad_norm, "gradients are scaled down to this global norm; 0: no limit",
      base::Range{0, 1e12});
    v("schedule", schedule, "learning rate");
  }
};

}  // namespace actor
