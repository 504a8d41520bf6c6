// Figures over all tokens.
#include "compare/differences.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace compare {
namespace {

// Largest first, then in order; no two tokens are equal in it.
bool before(const TokenDifference& l, const TokenDifference& r) {
  return std::tuple(-l.difference, l.sequence, l.position) < std::tuple(-r.difference, r.sequence, r.position);
}

// Keeps the first `count` in that order.
void cut(std::vector<TokenDifference>& list, size_t count) {
  std::sort(list.begin(), list.end(), before);
  if (list.size() > count) list.resize(count);
}

}  // namespace

Differences compare_log_probs(std::span<const LogProbs> a, std::span<const LogProbs> b, size_t num_worst) {
  CHECK(a.size() == b.size());
  Differences result;
  metrics::Distribution absolute;
  double sum = 0;
  for (size_t s = 0; s < a.size(); ++s) {
    CHECK(a[s].size() == b[s].size());
    for (size_t t = 1; t < a[s].size(); ++t) {
      if (!a[s][t] || !b[s][t]) {
        ++result.missing;
        continue;
      }
      const float x = *a[s][t], y = *b[s][t];
      if (x <= kImpossible && y <= kImpossible) {
        ++result.impossible;
        continue;
      }
      ++result.compared;
      double difference = std::abs(double{x} - double{y});
      if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
      absolute.add(difference);
      sum += double{x} - double{y};
      if (x == y) {
        ++result.equal;
        continue;
      }
      result.worst.push_back({s, static_cast<int64_t>(t), x, y, difference});
      if (result.worst.size() > 2 * num_worst + 1024) cut(result.worst, num_worst);  // it need not hold every token
    }
  }
  cut(result.worst, num_worst);
  result.absolute = absolute.summary();
  if (result.compared > 0) result.mean_signed = sum / static_cast<double>(result.compared);
  return result;
}

}  // namespace compare
