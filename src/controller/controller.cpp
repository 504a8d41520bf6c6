// The step.
#include "controller/controller.h"

#include "metrics/names.h"

namespace controller {

bool Controller::learn() {
  publish();  // first of all, also after a resume: the engine answers with the weights that the actor holds
  if (!evaluate_if_due()) return stopped();
  pipeline_.start(run_.progress.step, run_.settings.run.steps);
  while (run_.progress.step < run_.settings.run.steps) {
    std::optional<metrics::Timers::Scope> time(std::in_place, run_.timers, metrics::kTimeStep);
    std::optional<Collected> collected = collect();  // ask, answer, score; drop groups that teach nothing
    if (!collected) return stopped();
    const std::optional<actor::StepReport> report = train(*collected);  // advantages, packing, log-probs, update
    if (!report) return stopped();
    ++run_.progress.step;
    publish();  // the weights of this step, as version `step`
    const bool evaluated = evaluate_if_due();
    time.reset();
    write(*collected, *report);
    save_if_due();
    if (!evaluated) return stopped();
  }
  save();
  return true;
}

}  // namespace controller
