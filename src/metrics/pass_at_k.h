// pass@k: the chance that at least one of k answers to a problem is right.
// Source: Chen et al., "Evaluating large language models trained on code", 2021, the unbiased estimator 1 - C(n-c,k) /
// C(n,k).
#pragma once
#include <cstdint>
#include <vector>

namespace metrics {

// A reward of at least this solves its problem.
inline constexpr double kSolvedReward = 1.0;
inline bool is_solved(double reward) { return reward >= kSolvedReward; }

// From n answers of which c are right; exactly 0 for c = 0 and exactly 1 when fewer than k are wrong.
// Error{invalid_argument} unless 0 <= c <= n and 1 <= k <= n.
double pass_at_k(int64_t n, int64_t c, int64_t k);

// 1, 2, 4, ... up to n.
std::vector<int64_t> usual_ks(int64_t n);

}  // namespace metrics
