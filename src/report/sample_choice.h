// Which samples of a run are worth a look: the best and the worst of the latest step, and the problems whose answers
// changed most between an early and a late step (of an evaluation if there were two, else of training).
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/sample.h"

namespace report {

struct ShownSample {
  int64_t step = 0;
  std::string problem, prompt, label;
  data::Sample sample;
};

struct Change {
  std::string problem, prompt, label;
  double mean_before = 0, mean_after = 0;  // rewards over the samples of the problem
  ShownSample before, after;               // of typical reward then and now
};

struct SampleChoice {
  std::string source;  // where they come from, in words
  std::vector<ShownSample> best, worst;
  std::string change_source;
  std::vector<Change> changed;  // largest change of the mean reward first; unchanged problems are left out
};

// folder: rollouts/ of a run; empty choice if there are no files. At most `count` of each.
SampleChoice choose_samples(const std::filesystem::path& folder, size_t count);

}  // namespace report
