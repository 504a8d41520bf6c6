// Everything that a run reads before it computes: configuration, tokenizer, problems, demonstrations, evaluation sets,
// checked against each other.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "controller/evaluation.h"
#include "controller/settings.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "model/config.h"
#include "rollout/engine.h"

namespace controller {

struct Inputs {
  model::Config config;
  data::Tokenizer tokenizer;
  std::vector<data::Problem> problems = {};              // to learn from; empty for evaluation alone
  std::vector<data::Demonstration> demonstrations = {};  // of the warm-up
  std::vector<EvalSet> sets = {};
  std::string fingerprint = {};  // of problems and demonstrations: the same after a resume on the same data
  int64_t longest = 2;           // tokens of the longest prompt and answer that can come up in training, together

  // The tokenizer as the engine needs it; valid as long as the inputs stay where they are.
  rollout::Vocabulary vocabulary() const;
};

enum class Purpose { training, evaluation };  // evaluation: no problems to learn from, no demonstrations

// Errors: those of the readers; invalid_argument for a tokenizer that does not fit the model, a prompt that leaves no
// room for an answer, a label that no answer can match, sets with one name, and sets without problems.
Inputs read_inputs(const RunSettings& settings, Purpose purpose);

}  // namespace controller
