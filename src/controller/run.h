// What all phases of a run share: settings, inputs, folder, console, logs, where it stands, and saving that.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "actor/actor.h"
#include "checkpoint/run_state.h"
#include "controller/evaluation.h"
#include "controller/inputs.h"
#include "controller/progress.h"
#include "controller/run_folder.h"
#include "controller/settings.h"
#include "metrics/timers.h"
#include "report/console.h"
#include "report/run_log.h"

namespace controller {

// Thrown by a progress callback to abandon a call into the actor when the run shall stop; caught where the call is
// made.
struct Stopped {};

// A checkpoint: where the run stood, of which model and data, and the actor's state.
struct Saved {
  RunProgress progress;
  model::Config config;
  std::string fingerprint;  // Inputs::fingerprint
  actor::ActorState actor;
  std::string where;  // for messages
};

// The newest complete checkpoint of the folder; nothing if it has none. Errors: corruption.
std::optional<Saved> load_newest(const RunFolder& folder);

class Run {
 public:
  // settings, inputs and folder must outlive it. resumed: `start` is where a checkpoint stands. Whatever the logs in
  // the folder say of what comes after `start` is dropped.
  Run(const RunSettings& settings, const Inputs& inputs, const RunFolder& folder, StopAsked stop, RunProgress start,
      bool resumed);

  const RunSettings& settings;
  const Inputs& inputs;
  const RunFolder& folder;
  const StopAsked stop;
  RunProgress progress;
  report::Console console;
  report::RunLog log;
  metrics::Timers timers;  // of the step in flight

  int64_t log_step() const { return controller::log_step(progress, settings.warmup.steps); }

  // The step's line for metrics.jsonl, with its times. Clears the timers: a checkpoint is saved after its step's line
  // is written, so its time stands in the line of the next step.
  void write(metrics::StepMetrics figures);
  void write(const EvalResult& result);

  // What an actor's stop rule says: notes it and ends the run with Error{unavailable}. Nothing when it says nothing.
  void obey(const std::optional<std::string>& stop_rule);

  bool save_due() const;
  // Writes a checkpoint of where the run stands, unless the newest one is of here. score: the value of checkpoint.best
  // at this step. Errors: unavailable (disk).
  void save(const actor::Actor& actor, std::optional<double> score = std::nullopt);

 private:
  checkpoint::RunState warmup_, learning_;  // the first is emptied when learning begins
  std::optional<std::pair<Phase, int64_t>> saved_at_;
};

}  // namespace controller
