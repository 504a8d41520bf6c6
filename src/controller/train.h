// The entry points of a run: learn, or evaluate alone.
#pragma once
#include <string>

#include "controller/generator.h"
#include "controller/settings.h"

namespace controller {

struct Invocation {
  bool resume = false;              // go on with the run in run.dir
  bool allow_changed = false;       // also with settings that alter its result
  std::string program = "furlong";  // how the resume command that is printed begins
};

enum class RunEnd { finished, stopped };

// Runs a recipe to its end: warm-up, reinforcement learning, evaluations, the final model. stopped: stop said true; the
// state is saved, and the command that goes on with the run has been printed. Nothing is written before all settings,
// data and the memory plan have been checked.
// Errors: invalid_argument for settings and data, naming the setting; unavailable for a folder in use, a full disk or
// memory, a reward that cannot be computed; corruption for checkpoints; a stop rule (unavailable) naming the step.
RunEnd train(const RunSettings& settings, const Invocation& invocation, const StopAsked& stop);

// Evaluates model.path (or the random weights of model.config) on the sets of eval, prints the table and writes nothing
// unless run.dir is given, to whose eval.jsonl the results are added. Builds no optimizer and changes no weights.
RunEnd evaluate(const RunSettings& settings, const StopAsked& stop);

}  // namespace controller
