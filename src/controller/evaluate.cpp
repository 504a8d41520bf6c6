// Evaluation alone: weights, engine, reward workers; no actor.

#include <fmt/format.h>

#include <optional>

#include "base/parallel.h"
#include "controller/judges.h"
#include "controller/start.h"
#include "controller/train.h"
#include "report/text_chart.h"
#include "weight_sync/in_process.h"

namespace controller {
using base::Code;
namespace {

void print_table(const std::vector<metrics::EvalRecord>& records, report::Console& console) {
  for (const metrics::EvalRecord& record : records) {
    std::vector<std::vector<std::string>> rows;
    const auto add = [&](const std::string& name, double value) {
      rows.push_back({name, fmt::format("{:.3f}", value)});
    };
    for (const auto& [k, value] : record.pass_at) add(fmt::format("pass@{}", k), value);
    if (record.greedy) add("greedy", *record.greedy);
    add("truncated", record.truncated);
    for (const auto& [key, values] : record.by) {
      for (const auto& [value, pass] : values) add(fmt::format("pass@1, {} {}", key, value), pass);
    }
    const std::string head = fmt::format("{} ({} problems, {} answers)", record.set, record.problems, record.answers);
    console.line("\n" + report::text_table({head, ""}, rows));
  }
}

}  // namespace

RunEnd evaluate(const RunSettings& settings, const StopAsked& stop) {
  if (settings.eval.sets.empty()) {
    base::fail(Code::invalid_argument,
               "eval.sets is empty: there is nothing to evaluate on. Add a set with a name and "
               "data.path");
  }
  settings.check_evaluation();
  if (settings.run.threads > 0) base::set_num_threads(static_cast<int>(settings.run.threads));
  const Inputs inputs = read_inputs(settings, Purpose::evaluation);
  report::Console console(settings.console);
  const std::vector<MemoryPart> parts = plan_run(settings, inputs, Purpose::evaluation);
  check_memory(parts, available_memory_bytes());

  std::optional<model::Weights> weights = starting_weights(settings, inputs.config);
  rollout::Engine engine(weights->config, settings.rollout.engine, inputs.vocabulary());
  weight_sync::WeightsSource source(*weights, weight_sync::publish_as(engine.engine_weights().profile()));
  weight_sync::publish(source, engine.weights(), 0);
  weights.reset();  // the engine has its own

  EngineGenerator generator(engine);
  Judges judges(settings.reward, reward_kinds(settings.eval));
  std::optional<report::RunLog> log;
  if (!settings.run.dir.empty()) log.emplace(settings.run.dir, std::nullopt);
  std::vector<metrics::EvalRecord> records;
  for (const EvalSet& set : inputs.sets) {
    report::Console::Phase bar = console.phase("evaluate " + set.settings.name, 0, "answers");
    const std::optional<EvalResult> result = evaluate_set(
        set, 0, static_cast<uint64_t>(settings.run.seed), generator, judges.scorer(set.settings.reward_kind), stop,
        [&](int64_t answered, int64_t asked, int64_t) { bar.update(answered, asked); });
    if (!result) return RunEnd::stopped;
    if (log) log->write(result->record);
    records.push_back(result->record);
  }
  print_table(records, console);
  return RunEnd::finished;
}

}  // namespace controller
