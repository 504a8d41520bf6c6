// Inverse-CDF sampling with a fixed order of sums.
#include "rollout/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace rollout {
namespace {

constexpr size_t kBlock = 1024, kLanes = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float sum_by_blocks(std::span<const float> values) {
  float total = 0;
  for (size_t at = 0; at < values.size(); at += kBlock) {
    const std::span<const float> block = values.subspan(at, std::min(kBlock, values.size() - at));
    std::array<float, kLanes> lanes{};
    for (size_t i = 0; i < block.size(); ++i) lanes[i % kLanes] += block[i];
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    total += sum;
  }
  return total;
}

// The middles of 2^53 equal parts of (0, 1): a vocabulary of 10^5 tokens has tails that 24 bits would never reach.
double uniform(uint64_t seed, int64_t position) {
  const auto words = base::philox(seed, static_cast<uint64_t>(position));
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1p-53;
}

}  // namespace

bool RowSampler::exponentiate(std::span<const float> logits_V, double temperature) {
  const float t = static_cast<float>(temperature);
  float highest = -kInfinity;
  bool finite = true;
  for (size_t i = 0; i < logits_V.size(); ++i) {
    finite = finite && logits_V[i] < kInfinity;  // false for NaN too
    if (logits_V[i] > highest) highest = logits_V[i], best_ = i;
  }
  const float top = highest / t;
  if (!finite || !std::isfinite(top)) return false;
  shifted_.resize(logits_V.size());
  weights_.resize(logits_V.size());
  for (size_t i = 0; i < logits_V.size(); ++i) {
    shifted_[i] = logits_V[i] / t - top;
    weights_[i] = std::exp(shifted_[i]);
  }
  log_sum_ = std::log(sum_by_blocks(weights_));
  return true;
}

float RowSampler::log_prob_of(size_t id) const { return std::max(shifted_[id] - log_sum_, kLowestLogProb); }

// The ids that top-k and top-p keep, best first unless only top-k applies (then the last element is the last one kept).
void RowSampler::list_best(std::span<const float> logits_V, const SamplingParams& params, double total) {
  // Ids lighter than (1 - p) / V of the mass together weigh less than 1 - p, so the heavier ones reach p without them.
  const double least = (1 - params.top_p) * total / static_cast<double>(logits_V.size());
  kept_.clear();
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0 && weights_[i] >= least) kept_.push_back(static_cast<uint32_t>(i));
  }
  const auto better = [&](uint32_t a, uint32_t b) {
    return logits_V[a] != logits_V[b] ? logits_V[a] > logits_V[b] : a < b;
  };
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < kept_.size()) {
    const auto last = kept_.begin() + (params.top_k - 1);
    std::nth_element(kept_.begin(), last, kept_.end(), better);
    kept_.erase(last + 1, kept_.end());
  }
  if (params.top_p >= 1) return;
  std::sort(kept_.begin(), kept_.end(), better);
  double mass = 0;
  for (size_t i = 0; i < kept_.size(); ++i) {
    mass += weights_[kept_[i]];
    if (mass >= params.top_p * total) kept_.resize(i + 1);
  }
}

size_t RowSampler::choose(std::span<const float> logits_V, const SamplingParams& params, double u) {
  const float least = static_cast<float>(params.min_p);  // the highest weight is 1
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  const bool filtered = params.top_p < 1 || params.top_k > 0;
  if (filtered) {
    list_best(logits_V, params, total);
    std::sort(kept_.begin(), kept_.end());
  }
  const size_t count = filtered ? kept_.size() : weights_.size();
  const auto id_at = [&](size_t i) { return filtered ? size_t{kept_[i]} : i; };
  double kept_mass = 0;
  for (size_t i = 0; i < count; ++i) {
    const float w = weights_[id_at(i)];
    if (w >= least) kept_mass += w;
  }
  double mass = 0;
  size_t last = best_;
  for (size_t i = 0; i < count; ++i) {
    const float w = weights_[id_at(i)];
    if (w < least || w == 0) continue;
    mass += w;
    last = id_at(i);
    if (mass > u * kept_mass) break;
  }
  return last;
}

std::optional<Draw> RowSampler::draw(std::span<const float> logits_V, const SamplingParams& params, uint64_t seed,
                                     int64_t position) {
  CHECK(!logits_V.empty() && position >= 0);
  if (!exponentiate(logits_V, params.log_prob_temperature())) return std::nullopt;
  const size_t id = params.greedy() ? best_ : choose(logits_V, params, uniform(seed, position));
  return Draw{static_cast<int32_t>(id), log_prob_of(id)};
}

std::optional<float> RowSampler::log_prob(std::span<const float> logits_V, double temperature, int32_t id) {
  CHECK(id >= 0 && static_cast<size_t>(id) < logits_V.size(), "id {} of {}", id, logits_V.size());
  if (!exponentiate(logits_V, temperature)) return std::nullopt;
  return log_prob_of(static_cast<size_t>(id));
}

}  // namespace rollout
