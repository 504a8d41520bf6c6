// The result of evaluating one set at one step, and how it comes from single answers.
// Rules: answers are grouped by problem, so that a row repeated in the file is one problem with more answers; an answer
// without a reward counts as wrong and is reported; pass@k is the mean over problems of the unbiased estimator.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "metrics/step_metrics.h"

namespace metrics {

struct EvalRecord {
  int64_t step = 0;
  std::string set;
  int64_t problems = 0, answers = 0;
  int64_t missing = 0;                                      // answers without a reward
  std::vector<std::pair<int64_t, double>> pass_at;          // (k, pass@k), k ascending
  double reward_mean = 0;                                   // a missing reward counts as 0
  double truncated = 0;                                     // fraction of answers ended by a length limit
  double length_mean = 0;                                   // tokens
  std::optional<double> greedy;                             // fraction of problems solved without sampling
  std::map<std::string, std::map<std::string, double>> by;  // pass@1 by value of a metadata key: by["carries"]["2"]
  bool operator==(const EvalRecord&) const = default;
};

// {"step", "set", "problems", "answers", "missing", "pass@1", ..., "reward", "truncated", "length", "greedy"?, "by"?}
base::Json to_json(const EvalRecord& record);
EvalRecord eval_record_from_json(const base::Json& json, const std::string& where);  // Error{corruption}

// Sets eval/<set>/... in a step's metrics: pass@k, greedy, truncated, reward, length.
void write_to(const EvalRecord& record, StepMetrics& metrics);

struct EvalAnswer {
  std::string problem;           // the same for all answers to one problem; a good key is its prompt and label
  std::optional<double> reward;  // none: it could not be scored or was cancelled
  bool truncated = false;
  int64_t length = 0;                                     // tokens
  std::vector<std::pair<std::string, std::string>> tags;  // (key, value) for the breakdown
};

class EvalTally {
 public:
  void add(const EvalAnswer& answer);
  void add_greedy(const EvalAnswer& answer);

  // ks: which pass@k. A k larger than the number of answers of some problem is an Error{invalid_argument} that names
  // both; an empty tally too (an evaluation of nothing is a mistake in the settings).
  EvalRecord record(int64_t step, const std::string& set, const std::vector<int64_t>& ks) const;

 private:
  struct Problem {
    int64_t answers = 0, solved = 0;
    std::vector<std::pair<std::string, std::string>> tags;
  };
  std::map<std::string, Problem> problems_;
  std::map<std::string, bool> greedy_;
  int64_t missing_ = 0, truncated_ = 0, tokens_ = 0;
  double rewards_ = 0;
};

}  // namespace metrics
