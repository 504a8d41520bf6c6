// The JSON of a run's progress.
#include "controller/progress.h"

#include "base/error.h"
#include "data/json_fields.h"

namespace controller {

std::string to_string(Phase phase) { return phase == Phase::warmup ? "warmup" : "learning"; }

base::Json to_json(const RunProgress& progress) {
  base::Json json = {{"phase", to_string(progress.phase)},
                     {"step", progress.step},
                     {"evaluated_step", progress.evaluated_step},
                     {"pipeline", progress.pipeline}};
  if (progress.best) json["best"] = *progress.best;
  return json;
}

RunProgress progress_from_json(const base::Json& json, const std::string& where) {
  RunProgress progress;
  const std::string& phase = data::text_member(json, "phase", where);
  progress.step = data::integer_member(json, "step", where);
  if ((phase != "warmup" && phase != "learning") || progress.step < 0) {
    base::fail(base::Code::corruption,
               "{}: stands at step {} of phase \"{}\"; phases are warmup and learning, steps "
               "count from 0",
               where, progress.step, phase);
  }
  progress.phase = phase == "warmup" ? Phase::warmup : Phase::learning;
  progress.evaluated_step = data::integer_member(json, "evaluated_step", where);
  if (data::find_member(json, "best", where)) progress.best = data::number_member(json, "best", where);
  progress.pipeline = data::member(json, "pipeline", where);
  return progress;
}

int64_t log_step(const RunProgress& progress, int64_t warmup_steps) {
  return progress.phase == Phase::warmup ? progress.step - warmup_steps : progress.step;
}

}  // namespace controller
