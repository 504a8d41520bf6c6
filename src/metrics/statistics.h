// Exact statistics of a set of numbers that is held whole: what "mean", "std", "p99" and "max" mean in every report of
// Furlong.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace metrics {

// Of the finite values; those that are not finite are only counted, so that a broken token cannot hide in a mean. All
// figures are 0 when there is no finite value.
struct Summary {
  int64_t count = 0;      // finite values
  int64_t nonfinite = 0;  // NaN and infinities
  double mean = 0;
  double std = 0;  // divides by count - 1; 0 for one value
  double min = 0, max = 0;
  double p50 = 0, p99 = 0;  // nearest rank: the least value with at least that share of the values at or below it
};

Summary summarize(std::span<const double> values);

// Collects values over a step. Sums are in f64, in the order of arrival for the same set in the same order: the same
// bits.
class Distribution {
 public:
  void add(double value) { values_.push_back(value); }
  void add(std::span<const float> values) { values_.insert(values_.end(), values.begin(), values.end()); }
  void add(std::span<const double> values) { values_.insert(values_.end(), values.begin(), values.end()); }
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  Summary summary() const { return summarize(values_); }

 private:
  std::vector<double> values_;
};

}  // namespace metrics
