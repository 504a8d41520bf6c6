// What a run writes about itself beside its checkpoints, in one place:
//   metrics.jsonl  a line per step            eval.jsonl    a line per evaluation
//   events.jsonl   what happened, with time   rollouts/     every sample
// Everything is readable after a kill at any moment. On resume from step N, lines and files of later steps are dropped,
// so that a step done again appears once; events are the history of the processes and stay. Write a step's lines before
// its checkpoint.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "data/sample.h"
#include "metrics/evaluation.h"
#include "metrics/step_metrics.h"
#include "report/jsonl.h"

namespace report {

// kind: one word, the report groups by it: start, resume, stop, best, warning.
struct Event {
  int64_t step = 0;
  std::string kind;
  std::string text;
  std::string time;  // UTC, 2026-01-31T12:00:00Z
};

base::Json to_json(const Event& event);
Event event_from_json(const base::Json& json, const std::string& where);  // Error{corruption}
std::string utc_now();

// Used by one thread at a time.
class RunLog {
 public:
  // resumed_step: the last committed step of a run that is resumed; none for a new run. Makes the folder.
  RunLog(std::filesystem::path run, std::optional<int64_t> resumed_step, std::function<std::string()> now = utc_now);

  void write(const metrics::StepMetrics& step);
  void write(const metrics::EvalRecord& record);
  void write_event(int64_t step, const std::string& kind, const std::string& text);
  void write_samples(int64_t step, std::span<const data::Group> groups);
  void write_eval_samples(int64_t step, const std::string& set, std::span<const data::Group> groups);

 private:
  std::filesystem::path run_;
  std::function<std::string()> now_;
  std::optional<JsonLines> metrics_, evaluations_, events_;
};

}  // namespace report
