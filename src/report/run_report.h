// `furlong report RUN`: what became of a run, as text for a terminal. Works on a run that is still going on, or was
// killed.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "metrics/evaluation.h"
#include "metrics/step_metrics.h"
#include "report/run_log.h"

namespace report {

// A setting that differs from its default, both as text. Who knows the settings structs makes the list.
struct ChangedSetting {
  std::string name, value, default_value;
};

// Everything that the report is made of, but for the samples.
struct RunRecord {
  std::vector<metrics::StepMetrics> steps;       // by step
  std::vector<metrics::EvalRecord> evaluations;  // as written
  std::vector<Event> events;
};

// Error{not_found} if the folder has no metrics.jsonl and no eval.jsonl; {corruption} naming file and line.
RunRecord read_run(const std::filesystem::path& run);

std::string run_report(const std::filesystem::path& run, const std::vector<ChangedSetting>& changed);

// The sections, each with its heading, or empty when there is nothing to say.
std::string settings_section(const std::vector<ChangedSetting>& changed);
std::string reward_section(const RunRecord& record);
std::string evaluation_section(const RunRecord& record);
std::string learning_section(const RunRecord& record);  // first, last, least and greatest of the figures to watch
std::string gap_section(const RunRecord& record);
std::string time_section(const RunRecord& record);
std::string event_section(const RunRecord& record);
std::string sample_section(const std::filesystem::path& run);

}  // namespace report
