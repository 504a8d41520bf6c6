// Weights of tokens by totals of the step.
#include "actor/loss/reduction.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/error.h"

namespace actor {

Reduction parse_reduction(const std::string& name) {
  if (name == "sample") return Reduction::sample;
  if (name == "token") return Reduction::token;
  if (name == "constant") return Reduction::constant;
  base::fail(base::Code::invalid_argument, "reduction '{}' is unknown; choose sample, token or constant", name);
}

std::vector<double> token_weights(std::span<const SampleCount> samples, Reduction reduction, int64_t max_tokens) {
  std::map<int64_t, int64_t> active_of_rollout;
  int64_t active = 0;
  for (const SampleCount& sample : samples) {
    active_of_rollout[sample.rollout] += sample.active;
    active += sample.active;
  }
  const auto at_least_one = [](int64_t count) { return static_cast<double>(std::max<int64_t>(1, count)); };
  // The mean over rollouts divides by rollouts, a constant divides by samples: the two differ for fragments only.
  const double num_rollouts = at_least_one(static_cast<int64_t>(active_of_rollout.size()));
  std::vector<double> weights;
  weights.reserve(samples.size());
  for (const SampleCount& sample : samples) {
    switch (reduction) {
      case Reduction::sample:
        weights.push_back(1 / (num_rollouts * at_least_one(active_of_rollout[sample.rollout])));
        break;
      case Reduction::token:
        weights.push_back(1 / at_least_one(active));
        break;
      case Reduction::constant:
        CHECK(max_tokens > 0);
        weights.push_back(1 / (at_least_one(static_cast<int64_t>(samples.size())) * static_cast<double>(max_tokens)));
        break;
    }
  }
  return weights;
}

Tensor select_active(const Tensor& active_N, const Tensor& value_N) {
  return at::where(active_N, value_N, at::zeros({}, value_N.options()));
}

Tensor reduce_tokens(const Tensor& value_N, const Tensor& weight_N, const Tensor& active_N) {
  return (select_active(active_N, value_N) * weight_N).sum();
}

}  // namespace actor
