// Evaluates the policy on named sets of held-out problems: num_samples answers to each problem, and one greedy answer
// if asked for. The seed of an answer follows from run seed, set, row and index alone, so that evaluating the same
// weights again gives the same answers, and two steps are compared under the same noise.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "controller/collector.h"
#include "controller/generator.h"
#include "controller/settings.h"
#include "metrics/evaluation.h"
#include "rewards/worker_pool.h"

namespace controller {

struct EvalSet {
  EvalSetSettings settings;
  std::vector<data::Problem> problems;  // every row of the file; equal rows count as one problem
};

// The sets of the settings have different names and each has a problem. Error{invalid_argument} otherwise.
void check_sets(std::span<const EvalSet> sets);

struct EvalResult {
  metrics::EvalRecord record;
  std::vector<data::Group> groups;  // a group per row, ids are rows
  std::vector<data::Group> greedy;  // one answer each; empty if not asked for
};

using ScoreGroups = std::function<rewards::ScoreTotals(std::span<data::Group> groups, const StopAsked& stop)>;

// One set with the weights that `generator` serves. step: for the record. nullopt: stop said true. An answer that could
// not be scored counts with reward.failure_value and as missing. Progress as of the collector.
std::optional<EvalResult> evaluate_set(const EvalSet& set, int64_t step, uint64_t run_seed, Generator& generator,
                                       const ScoreGroups& score, const StopAsked& stop,
                                       const Collector::Progress& progress);

}  // namespace controller
