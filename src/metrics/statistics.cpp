// Two passes for the deviation: one pass loses digits when the mean is large against it.
#include "metrics/statistics.h"

#include <algorithm>
#include <cmath>

namespace metrics {
namespace {

// Reorders values.
double nearest_rank(std::vector<double>& values, int64_t percent) {
  const auto n = static_cast<int64_t>(values.size());
  const int64_t rank = std::max<int64_t>(1, (n * percent + 99) / 100);
  const auto at = values.begin() + (rank - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

Summary summarize(std::span<const double> values) {
  Summary result;
  std::vector<double> finite;
  finite.reserve(values.size());
  for (const double value : values) {
    if (std::isfinite(value)) finite.push_back(value);
  }
  result.count = static_cast<int64_t>(finite.size());
  result.nonfinite = static_cast<int64_t>(values.size()) - result.count;
  if (finite.empty()) return result;
  double sum = 0;
  for (const double value : finite) sum += value;
  result.mean = sum / static_cast<double>(result.count);
  double squares = 0;
  for (const double value : finite) squares += (value - result.mean) * (value - result.mean);
  if (result.count > 1) result.std = std::sqrt(squares / static_cast<double>(result.count - 1));
  const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
  result.min = *low;
  result.max = *high;
  result.p50 = nearest_rank(finite, 50);
  result.p99 = nearest_rank(finite, 99);
  return result;
}

}  // namespace metrics
