// Sums run over problems in the order of their keys, so that the order of the answers cannot change a figure.
#include "metrics/evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "metrics/names.h"
#include "metrics/pass_at_k.h"

namespace metrics {
namespace {
using base::Json;
constexpr std::string_view kPassPrefix = "pass@";

std::string pass_name(int64_t k) { return fmt::format("{}{}", kPassPrefix, k); }

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::optional<int64_t> k_of(const std::string& name) {
  if (!name.starts_with(kPassPrefix)) return std::nullopt;
  const std::string digits = name.substr(kPassPrefix.size());
  constexpr size_t kMaxDigits = 9;
  if (digits.empty() || digits.size() > kMaxDigits || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

}  // namespace

Json to_json(const EvalRecord& record) {
  Json json{{"step", record.step},
            {"set", record.set},
            {"problems", record.problems},
            {"answers", record.answers},
            {"missing", record.missing}};
  for (const auto& [k, value] : record.pass_at) json[pass_name(k)] = value;
  json["reward"] = record.reward_mean;
  json["truncated"] = record.truncated;
  json["length"] = record.length_mean;
  if (record.greedy) json["greedy"] = *record.greedy;
  for (const auto& [key, values] : record.by) {
    for (const auto& [value, pass] : values) json["by"][key][value] = pass;
  }
  return json;
}

EvalRecord eval_record_from_json(const Json& json, const std::string& where) {
  try {
    EvalRecord record;
    record.step = json.at("step").get<int64_t>();
    record.set = json.at("set").get<std::string>();
    record.problems = json.at("problems").get<int64_t>();
    record.answers = json.at("answers").get<int64_t>();
    record.missing = json.at("missing").get<int64_t>();
    for (const auto& [name, value] : json.items()) {
      if (const auto k = k_of(name)) record.pass_at.emplace_back(*k, value.get<double>());
    }
    std::sort(record.pass_at.begin(), record.pass_at.end());
    record.reward_mean = json.at("reward").get<double>();
    record.truncated = json.at("truncated").get<double>();
    record.length_mean = json.at("length").get<double>();
    if (json.contains("greedy")) record.greedy = json["greedy"].get<double>();
    if (json.contains("by")) {
      for (const auto& [key, values] : json["by"].items()) {
        for (const auto& [value, pass] : values.items()) record.by[key][value] = pass.get<double>();
      }
    }
    return record;
  } catch (const Json::exception& error) {
    base::fail(base::Code::corruption, "{}: not an evaluation record: {}", where, error.what());
  }
}

void write_to(const EvalRecord& record, StepMetrics& metrics) {
  for (const auto& [k, value] : record.pass_at) metrics.set(eval_name(record.set, pass_name(k)), value);
  if (record.greedy) metrics.set(eval_name(record.set, "greedy"), *record.greedy);
  metrics.set(eval_name(record.set, "reward"), record.reward_mean);
  metrics.set(eval_name(record.set, "truncated"), record.truncated);
  metrics.set(eval_name(record.set, "length"), record.length_mean);
}

void EvalTally::add(const EvalAnswer& answer) {
  Problem& problem = problems_[answer.problem];
  ++problem.answers;
  problem.tags = answer.tags;
  if (!answer.reward) ++missing_;
  if (answer.reward && is_solved(*answer.reward)) ++problem.solved;
  rewards_ += answer.reward.value_or(0);
  truncated_ += answer.truncated ? 1 : 0;
  tokens_ += answer.length;
}

void EvalTally::add_greedy(const EvalAnswer& answer) {
  greedy_[answer.problem] = answer.reward && is_solved(*answer.reward);
}

EvalRecord EvalTally::record(int64_t step, const std::string& set, const std::vector<int64_t>& ks) const {
  if (problems_.empty()) {
    base::fail(base::Code::invalid_argument, "evaluation set \"{}\" has no answers: is its file empty?", set);
  }
  EvalRecord record;
  record.step = step;
  record.set = set;
  record.problems = static_cast<int64_t>(problems_.size());
  for (const auto& [key, problem] : problems_) record.answers += problem.answers;
  record.missing = missing_;
  for (const int64_t k : ks) {
    double sum = 0;
    for (const auto& [key, problem] : problems_) {
      if (k < 1 || k > problem.answers) {
        base::fail(base::Code::invalid_argument,
                   "evaluation set \"{}\": pass@{} needs as many answers to each problem, but one has {}", set, k,
                   problem.answers);
      }
      sum += pass_at_k(problem.answers, problem.solved, k);
    }
    record.pass_at.emplace_back(k, sum / static_cast<double>(record.problems));
  }
  std::sort(record.pass_at.begin(), record.pass_at.end());
  record.reward_mean = rewards_ / static_cast<double>(record.answers);
  record.truncated = share(truncated_, record.answers);
  record.length_mean = share(tokens_, record.answers);
  if (!greedy_.empty()) {
    const auto solved = std::count_if(greedy_.begin(), greedy_.end(), [](const auto& entry) { return entry.second; });
    record.greedy = share(solved, static_cast<int64_t>(greedy_.size()));
  }
  std::map<std::string, std::map<std::string, int64_t>> counts;
  for (const auto& [key, problem] : problems_) {
    for (const auto& [tag, value] : problem.tags) {
      record.by[tag][value] += share(problem.solved, problem.answers);
      ++counts[tag][value];
    }
  }
  for (auto& [tag, values] : record.by) {
    for (auto& [value, sum] : values) sum /= static_cast<double>(counts[tag][value]);
  }
  return record;
}

}  // namespace metrics
