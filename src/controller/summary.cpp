// Tables and examples from eval.jsonl and rollouts/.
#include "controller/summary.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "metrics/evaluation.h"
#include "report/jsonl.h"
#include "report/sample_choice.h"
#include "report/text_chart.h"

namespace controller {
namespace fs = std::filesystem;
namespace {

constexpr size_t kNumChanges = 3;
constexpr size_t kAnswerBytes = 160;

struct FirstAndLast {
  metrics::EvalRecord first, last;
};

std::map<std::string, FirstAndLast> read_evaluations(const fs::path& run) {
  std::map<std::string, FirstAndLast> sets;
  report::for_each_line(run / "eval.jsonl", [&](const base::Json& line, const std::string& where) {
    const metrics::EvalRecord record = metrics::eval_record_from_json(line, where);
    sets.try_emplace(record.set, FirstAndLast{record, record}).first->second.last = record;
  });
  return sets;
}

std::string figure(double value) { return fmt::format("{:.3f}", value); }

void add_breakdown(const FirstAndLast& set, std::vector<std::vector<std::string>>& rows) {
  for (const auto& [key, values] : set.last.by) {
    for (const auto& [value, after] : values) {
      std::string before = "-";
      if (const auto k = set.first.by.find(key); k != set.first.by.end() && k->second.contains(value)) {
        before = figure(k->second.at(value));
      }
      rows.push_back({fmt::format("pass@1, {} {}", key, value), before, figure(after)});
    }
  }
}

std::string set_table(const std::string& name, const FirstAndLast& set) {
  std::vector<std::vector<std::string>> rows;
  const std::map<int64_t, double> before(set.first.pass_at.begin(), set.first.pass_at.end());
  for (const auto& [k, after] : set.last.pass_at) {
    const auto first = before.find(k);
    rows.push_back({fmt::format("pass@{}", k), first == before.end() ? "-" : figure(first->second), figure(after)});
  }
  if (set.last.greedy) {
    rows.push_back({"greedy", set.first.greedy ? figure(*set.first.greedy) : "-", figure(*set.last.greedy)});
  }
  rows.push_back({"truncated", figure(set.first.truncated), figure(set.last.truncated)});
  add_breakdown(set, rows);
  return report::text_table({fmt::format("{} ({} problems)", name, set.last.problems),
                             fmt::format("step {}", set.first.step), fmt::format("step {}", set.last.step)},
                            rows);
}

std::string change_text(const report::Change& change) {
  const auto answer = [](const report::ShownSample& shown) {
    return fmt::format("  step {:>4}, reward {:g}: {}\n", shown.step, shown.sample.reward,
                       report::one_line(shown.sample.response, kAnswerBytes));
  };
  return fmt::format("{}   (expected: {})\n", report::one_line(change.prompt, kAnswerBytes),
                     report::one_line(change.label, kAnswerBytes)) +
         answer(change.before) + answer(change.after);
}

}  // namespace

std::string run_summary(const fs::path& run) {
  std::string text;
  for (const auto& [name, set] : read_evaluations(run)) text += set_table(name, set) + "\n";
  if (text.empty()) return text;
  const report::SampleChoice choice = report::choose_samples(run / "rollouts", kNumChanges);
  if (choice.changed.empty()) return text;
  text += fmt::format("Answers that changed most ({}):\n", choice.change_source);
  for (const report::Change& change : choice.changed) text += change_text(change);
  return text;
}

}  // namespace controller
