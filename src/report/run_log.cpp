// Cuts back first, then opens for appending.
#include "report/run_log.h"

#include <ctime>

#include "data/json_fields.h"
#include "report/rollouts.h"

namespace report {
namespace fs = std::filesystem;

base::Json to_json(const Event& event) {
  return {{"step", event.step}, {"kind", event.kind}, {"text", event.text}, {"time", event.time}};
}

Event event_from_json(const base::Json& json, const std::string& where) {
  return {data::integer_member(json, "step", where), data::text_member(json, "kind", where),
          data::text_member(json, "text", where), data::text_member(json, "time", where)};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

RunLog::RunLog(fs::path run, std::optional<int64_t> resumed_step, std::function<std::string()> now)
    : run_(std::move(run)), now_(std::move(now)) {
  fs::create_directories(run_);
  const fs::path metrics = run_ / "metrics.jsonl", evaluations = run_ / "eval.jsonl";
  if (resumed_step) {
    drop_lines_after(metrics, *resumed_step);
    drop_lines_after(evaluations, *resumed_step);
    drop_rollouts_after(run_ / "rollouts", *resumed_step);
  }
  metrics_.emplace(metrics);
  evaluations_.emplace(evaluations);
  events_.emplace(run_ / "events.jsonl");
}

void RunLog::write(const metrics::StepMetrics& step) { metrics_->append(metrics::to_json(step)); }

void RunLog::write(const metrics::EvalRecord& record) { evaluations_->append(metrics::to_json(record)); }

void RunLog::write_event(int64_t step, const std::string& kind, const std::string& text) {
  events_->append(to_json(Event{step, kind, text, now_()}));
}

void RunLog::write_samples(int64_t step, std::span<const data::Group> groups) {
  write_rollouts(rollout_path(run_ / "rollouts", step), step, groups);
}

void RunLog::write_eval_samples(int64_t step, const std::string& set, std::span<const data::Group> groups) {
  write_rollouts(rollout_path(run_ / "rollouts", step, set), step, groups);
}

}  // namespace report
