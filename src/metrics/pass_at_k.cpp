// As a product: the binomials overflow a double at n = 1000.
#include "metrics/pass_at_k.h"

#include "base/error.h"

namespace metrics {

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  if (c < 0 || c > n || k < 1 || k > n) {
    base::fail(base::Code::invalid_argument,
               "pass@{} of {} answers with {} right: k must be 1 to {} and at most all can be right", k, n, c, n);
  }
  if (c == 0) return 0;
  if (n - c < k) return 1;
  double all_wrong = 1;  // C(n-c,k) / C(n,k)
  for (int64_t i = n - c + 1; i <= n; ++i) all_wrong *= 1.0 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - all_wrong;
}

std::vector<int64_t> usual_ks(int64_t n) {
  std::vector<int64_t> result;
  for (int64_t k = 1; k <= n; k *= 2) result.push_back(k);
  return result;
}

}  // namespace metrics
