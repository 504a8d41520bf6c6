// One function per section.
#include "report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "metrics/names.h"
#include "metrics/statistics.h"
#include "report/console.h"
#include "report/sample_choice.h"
#include "report/text_chart.h"

namespace report {
namespace fs = std::filesystem;
namespace {
using metrics::StepMetrics;
using Points = std::vector<std::pair<int64_t, double>>;

constexpr size_t kShownSamples = 3, kShownPrompt = 200, kShownResponse = 600, kShownEvents = 20;

std::string heading(std::string_view title) { return fmt::format("\n{}\n{}\n", title, std::string(title.size(), '-')); }

Points points_of(const RunRecord& record, std::string_view name) {
  Points points;
  for (const StepMetrics& step : record.steps) {
    if (const auto value = step.find(name)) points.emplace_back(step.step(), *value);
  }
  return points;
}

std::vector<double> values_of(const Points& points) {
  std::vector<double> values;
  for (const auto& point : points) values.push_back(point.second);
  return values;
}

std::pair<int64_t, double> greatest(const Points& points) {
  return *std::max_element(points.begin(), points.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
}

std::string figure(double value) { return fmt::format("{:.4g}", value); }

double mean_of(const Points& points, size_t begin, size_t end) {
  const std::vector<double> values = values_of(
      {points.begin() + static_cast<std::ptrdiff_t>(begin), points.begin() + static_cast<std::ptrdiff_t>(end)});
  return metrics::summarize(values).mean;
}

std::string evaluation_table(const std::vector<metrics::EvalRecord>& records) {
  std::set<int64_t> ks;
  bool greedy = false;
  for (const auto& record : records) {
    greedy = greedy || record.greedy.has_value();
    for (const auto& [k, value] : record.pass_at) ks.insert(k);
  }
  std::vector<std::string> header = {"after step"};
  for (const int64_t k : ks) header.push_back(fmt::format("pass@{}", k));
  if (greedy) header.emplace_back("greedy");
  header.insert(header.end(), {"truncated", "length", "answers"});
  std::vector<std::vector<std::string>> rows;
  for (const auto& record : records) {
    const std::map<int64_t, double> pass(record.pass_at.begin(), record.pass_at.end());
    std::vector<std::string> row = {std::to_string(record.step)};
    for (const int64_t k : ks) row.push_back(pass.contains(k) ? fmt::format("{:.3f}", pass.at(k)) : "-");
    if (greedy) row.push_back(record.greedy ? fmt::format("{:.3f}", *record.greedy) : "-");
    row.push_back(fmt::format("{:.1f}%", record.truncated * 100));
    row.push_back(fmt::format("{:.1f}", record.length_mean));
    row.push_back(
        fmt::format("{}{}", record.answers, record.missing > 0 ? fmt::format(" ({} unscored)", record.missing) : ""));
    rows.push_back(row);
  }
  return text_table(header, rows);
}

// pass@1 by the values of each key, first evaluation against last.
std::string breakdown(const metrics::EvalRecord& first, const metrics::EvalRecord& last) {
  std::string text;
  for (const auto& [key, values] : last.by) {
    const auto before = first.by.find(key);
    std::vector<std::vector<std::string>> rows;
    for (const auto& [value, pass] : values) {
      const bool known = before != first.by.end() && before->second.contains(value);
      rows.push_back(
          {value, known ? fmt::format("{:.3f}", before->second.at(value)) : "-", fmt::format("{:.3f}", pass)});
    }
    text += fmt::format("\n  pass@1 by {}\n", key);
    text += text_table({key, fmt::format("step {}", first.step), fmt::format("step {}", last.step)}, rows);
  }
  return text;
}

std::string sample_text(const ShownSample& shown) {
  const data::Sample& sample = shown.sample;
  std::string text = fmt::format("    answer  {}\n", one_line(sample.response, kShownResponse));
  text += fmt::format("    reward  {:.4g}: {}  ({} tokens, {})\n", sample.reward,
                      one_line(sample.reward_note, kShownPrompt), sample.response_ids.size(),
                      data::to_string(sample.finish));
  return text;
}

std::string problem_text(const std::string& problem, const std::string& prompt, const std::string& label) {
  return fmt::format("  {}\n    prompt  {}\n    label   {}\n", problem, one_line(prompt, kShownPrompt),
                     one_line(label, kShownPrompt));
}

std::string samples_text(std::string_view title, const std::vector<ShownSample>& samples) {
  if (samples.empty()) return "";
  std::string text = fmt::format("\n {}\n", title);
  for (const ShownSample& one : samples) text += problem_text(one.problem, one.prompt, one.label) + sample_text(one);
  return text;
}

std::string summary_line(const RunRecord& record) {
  if (record.steps.empty()) return "no step finished yet\n";
  double seconds = 0;
  for (const auto& [step, value] : points_of(record, metrics::kTimeStep)) seconds += value;
  std::string text =
      fmt::format("{} steps, {} to {}", record.steps.size(), record.steps.front().step(), record.steps.back().step());
  if (seconds > 0) text += fmt::format(", {}", duration(seconds));
  return text + fmt::format(", {} evaluations\n", record.evaluations.size());
}

}  // namespace

RunRecord read_run(const fs::path& run) {
  const fs::path metrics = run / "metrics.jsonl", evaluations = run / "eval.jsonl";
  if (!fs::exists(metrics) && !fs::exists(evaluations)) {
    base::fail(base::Code::not_found,
               "{}: no run lies there (neither metrics.jsonl nor eval.jsonl); give the folder that run.dir named",
               run.string());
  }
  RunRecord record;
  for_each_line(metrics, [&](const base::Json& line, const std::string& where) {
    record.steps.push_back(metrics::step_metrics_from_json(line, where));
  });
  for_each_line(evaluations, [&](const base::Json& line, const std::string& where) {
    record.evaluations.push_back(metrics::eval_record_from_json(line, where));
  });
  for_each_line(run / "events.jsonl", [&](const base::Json& line, const std::string& where) {
    record.events.push_back(event_from_json(line, where));
  });
  return record;
}

std::string settings_section(const std::vector<ChangedSetting>& changed) {
  if (changed.empty()) return "";
  std::string text = heading("Settings that differ from the defaults");
  size_t width = 0;
  for (const ChangedSetting& setting : changed) width = std::max(width, setting.name.size());
  for (const ChangedSetting& setting : changed) {
    text += fmt::format("  {:<{}}  {}  (default {})\n", setting.name, width, one_line(setting.value, kShownPrompt),
                        one_line(setting.default_value, kShownPrompt));
  }
  return text;
}

std::string reward_section(const RunRecord& record) {
  const Points points = points_of(record, metrics::kRewardMean);
  if (points.empty()) return "";
  const size_t part = std::max<size_t>(1, points.size() / 10);
  std::string text = heading("Reward (mean of each step)");
  text += text_chart(points);
  text += fmt::format("  first {} step{}: {:.4f}   last {}: {:.4f}\n", part, part == 1 ? "" : "s",
                      mean_of(points, 0, part), part, mean_of(points, points.size() - part, points.size()));
  return text;
}

std::string evaluation_section(const RunRecord& record) {
  if (record.evaluations.empty()) return "";
  std::map<std::string, std::vector<metrics::EvalRecord>> by_set;
  for (const auto& evaluation : record.evaluations) by_set[evaluation.set].push_back(evaluation);
  std::string text = heading("Evaluations");
  for (const auto& [set, records] : by_set) {
    text += fmt::format("  {} ({} problems)\n", set, records.back().problems);
    text += evaluation_table(records) + breakdown(records.front(), records.back());
  }
  return text;
}

std::string learning_section(const RunRecord& record) {
  constexpr std::string_view kWatched[] = {
      metrics::kRewardMean,    metrics::kRewardStd,     metrics::kResponseLengthMean, metrics::kResponseTruncated,
      metrics::kPolicyEntropy, metrics::kPolicyKl,      metrics::kPolicyGradNorm,     metrics::kPolicyClipFraction,
      metrics::kTisMean,       metrics::kStalenessMean, metrics::kGroupsDropped,      metrics::kLossSft};
  std::vector<std::vector<std::string>> rows;
  for (const std::string_view name : kWatched) {
    const Points points = points_of(record, name);
    if (points.empty()) continue;
    const metrics::Summary summary = metrics::summarize(values_of(points));
    rows.push_back({std::string(name), figure(points.front().second), figure(points.back().second), figure(summary.min),
                    figure(summary.max), fmt::format("{}", greatest(points).first)});
  }
  if (rows.empty()) return "";
  return heading("Learning") + text_table({"", "first", "last", "least", "greatest", "at step"}, rows);
}

std::string gap_section(const RunRecord& record) {
  const Points means = points_of(record, metrics::kGapMean);
  if (means.empty()) return "";
  std::string text = heading("Gap between rollout and actor log-probs");
  const auto row = [&](std::string_view label, std::string_view name) -> std::vector<std::string> {
    const Points points = points_of(record, name);
    if (points.empty()) return {std::string(label), "-", "-", "-"};
    const auto [step, value] = greatest(points);
    return {std::string(label), figure(metrics::summarize(values_of(points)).mean), figure(value),
            std::to_string(step)};
  };
  text += text_table({"|difference| per token", "mean of steps", "worst step", "at step"},
                     {row("mean", metrics::kGapMean), row("p99", metrics::kGapP99), row("max", metrics::kGapMax)});
  double nonfinite = 0;
  for (const auto& [step, value] : points_of(record, metrics::kPolicyNonfinite)) nonfinite += value;
  if (nonfinite > 0)
    text +=
        fmt::format("  {:.0f} tokens had a log-ratio that was not finite and are not in these figures\n", nonfinite);
  return text;
}

std::string time_section(const RunRecord& record) {
  std::vector<std::string> names;
  std::map<std::string, double> totals;
  for (const StepMetrics& step : record.steps) {
    for (const auto& [name, value] : step.values()) {
      if (!name.starts_with(metrics::kTimePrefix) || !std::isfinite(value)) continue;
      if (!totals.contains(name)) names.push_back(name);
      totals[name] += value;
    }
  }
  if (names.empty()) return "";
  const auto whole = totals.find(std::string(metrics::kTimeStep));
  const double all = whole != totals.end() ? whole->second : 0;
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return totals[a] > totals[b]; });
  std::vector<std::vector<std::string>> rows;
  for (const std::string& name : names) {
    const std::string phase = name == metrics::kTimeStep ? "whole step"
                                                         : name.substr(metrics::kTimePrefix.size(),
                                                                       name.rfind("_s") - metrics::kTimePrefix.size());
    rows.push_back({phase, duration(totals[name]),
                    fmt::format("{:.3g} s", totals[name] / static_cast<double>(record.steps.size())),
                    all > 0 ? fmt::format("{:.1f}%", totals[name] / all * 100) : "-"});
  }
  return heading("Time") + text_table({"phase", "total", "per step", "share"}, rows);
}

std::string event_section(const RunRecord& record) {
  std::vector<std::string> lines;
  for (const StepMetrics& step : record.steps) {
    if (step.find(metrics::kPolicySkipped).value_or(0) > 0) {
      const auto norm = step.find(metrics::kPolicyGradNorm);
      lines.push_back(fmt::format("step {}: the update was not finite and was skipped{}", step.step(),
                                  norm ? fmt::format(" (policy/grad_norm {:.4g})", *norm) : ""));
    }
    if (const double failed = step.find(metrics::kRewardFailures).value_or(0); failed > 0) {
      lines.push_back(
          fmt::format("step {}: {:.0f} answers could not be scored and got the failure value", step.step(), failed));
    }
  }
  for (const Event& event : record.events) {
    lines.push_back(fmt::format("{} after step {}: {}: {}", event.time, event.step, event.kind,
                                one_line(event.text, kShownPrompt)));
  }
  if (lines.empty()) return "";
  std::string text = heading("Events");
  const size_t shown = std::min(lines.size(), kShownEvents);
  if (shown < lines.size()) text += fmt::format("  ({} earlier ones left out)\n", lines.size() - shown);
  for (size_t i = lines.size() - shown; i < lines.size(); ++i) text += "  " + lines[i] + "\n";
  return text;
}

std::string sample_section(const fs::path& run) {
  const SampleChoice choice = choose_samples(run / "rollouts", kShownSamples);
  if (choice.best.empty() && choice.changed.empty()) return "";
  std::string text = heading("Samples");
  text += samples_text(fmt::format("Best of {}", choice.source), choice.best);
  text += samples_text(fmt::format("Worst of {}", choice.source), choice.worst);
  if (!choice.changed.empty()) text += fmt::format("\n Most changed between {}\n", choice.change_source);
  for (const Change& change : choice.changed) {
    text += problem_text(change.problem, change.prompt, change.label);
    text += fmt::format("   before (mean reward {:.3g})\n{}", change.mean_before, sample_text(change.before));
    text += fmt::format("   after (mean reward {:.3g})\n{}", change.mean_after, sample_text(change.after));
  }
  return text;
}

std::string run_report(const fs::path& run, const std::vector<ChangedSetting>& changed) {
  const RunRecord record = read_run(run);
  std::string text = fmt::format("Run {}\n{}", run.string(), summary_line(record));
  text += settings_section(changed) + reward_section(record) + evaluation_section(record) + learning_section(record);
  text += gap_section(record) + time_section(record) + event_section(record) + sample_section(run);
  return text;
}

}  // namespace report
