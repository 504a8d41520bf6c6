// A list, not a map: a step has some forty figures, and their order is part of what people read.
#include "metrics/step_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace metrics {
namespace {

base::Json number_or_text(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

std::optional<double> number_from(const base::Json& json) {
  if (json.is_number()) return json.get<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return kInfinity;
  if (json == "-inf") return -kInfinity;
  return std::nullopt;
}

auto position_of(auto& values, std::string_view name) {
  return std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == name; });
}

}  // namespace

void StepMetrics::set(std::string_view name, double value) {
  const auto at = position_of(values_, name);
  if (at != values_.end()) {
    at->second = value;
  } else {
    values_.emplace_back(name, value);
  }
}

void StepMetrics::add(std::string_view name, double value) { set(name, find(name).value_or(0) + value); }

void StepMetrics::merge(const StepMetrics& other) {
  for (const auto& [name, value] : other.values_) set(name, value);
}

void StepMetrics::merge(const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) set(name, value);
}

std::optional<double> StepMetrics::find(std::string_view name) const {
  const auto at = position_of(values_, name);
  if (at == values_.end()) return std::nullopt;
  return at->second;
}

base::Json to_json(const StepMetrics& metrics) {
  base::Json json;
  json["step"] = metrics.step();
  for (const auto& [name, value] : metrics.values()) json[name] = number_or_text(value);
  return json;
}

StepMetrics step_metrics_from_json(const base::Json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
    base::fail(base::Code::corruption, "{}: not a line of step metrics: it has no integer \"step\"", where);
  }
  StepMetrics metrics(json["step"].get<int64_t>());
  for (const auto& [name, value] : json.items()) {
    if (name == "step") continue;
    if (const auto number = number_from(value)) metrics.set(name, *number);
  }
  return metrics;
}

}  // namespace metrics
