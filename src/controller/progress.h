// Where a run stands: what a checkpoint holds beside the actor's state.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace controller {

enum class Phase { warmup, learning };
std::string to_string(Phase phase);

struct RunProgress {
  Phase phase = Phase::warmup;
  int64_t step = 0;             // steps of the phase that are done; in learning also the version of the weights
  int64_t evaluated_step = -1;  // of learning, the last one whose evaluation is written; -1: none
  std::optional<double> best = std::nullopt;  // highest value of checkpoint.best so far
  base::Json pipeline = nullptr;              // Pipeline::state(); null before learning

  bool operator==(const RunProgress&) const = default;
};

base::Json to_json(const RunProgress& progress);
RunProgress progress_from_json(const base::Json& json, const std::string& where);  // Error{corruption}

// The step that metrics.jsonl and the other logs name: learning counts 1, 2, ...; the warm-up before it ends at 0, so
// its steps are 1 - warmup_steps ... 0.
int64_t log_step(const RunProgress& progress, int64_t warmup_steps);

}  // namespace controller
