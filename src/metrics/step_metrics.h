// The figures of one step: names (metrics/names.h) with numbers, in the order in which they were first set. A value
// type.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace metrics {

class StepMetrics {
 public:
  explicit StepMetrics(int64_t step = 0) : step_(step) {}

  int64_t step() const { return step_; }
  void set(std::string_view name, double value);  // replaces a value of that name
  void add(std::string_view name, double value);  // to what is there, or to 0
  void merge(const StepMetrics& other);           // sets all of other's values; its step is not looked at
  void merge(const std::map<std::string, double>& values);
  std::optional<double> find(std::string_view name) const;
  const std::vector<std::pair<std::string, double>>& values() const { return values_; }

  bool operator==(const StepMetrics&) const = default;

 private:
  int64_t step_;
  std::vector<std::pair<std::string, double>> values_;
};

// {"step": 12, "reward/mean": 0.5, ...}. JSON has no NaN and no infinity: they are the texts "nan", "inf" and "-inf".
base::Json to_json(const StepMetrics& metrics);

// Keys whose values are neither numbers nor one of the three texts are left out. Error{corruption}, naming where,
// without an integer "step".
StepMetrics step_metrics_from_json(const base::Json& json, const std::string& where);

}  // namespace metrics
