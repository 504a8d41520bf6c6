// Inverse-CDF sampling with a fixed order of sums.
#include "rollout/sampler.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace rollout {
namespace {

constexpr size_t kBlock = kernels::cpu::kVocabBlock;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A score that at least `count` ids reach: the count-th best of the maxima of V / 64 groups of ids.
float reached_by(std::span<const float> logits_V, size_t count) {
  constexpr size_t kLanes = 16;
  std::vector<float> maxima;
  maxima.reserve(logits_V.size() / kBlock * kLanes);
  for (size_t at = 0; at + kBlock <= logits_V.size(); at += kBlock) {
    std::array<float, kLanes> lanes;
    lanes.fill(-kInfinity);
    for (size_t i = at; i < at + kBlock; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = std::max(lanes[lane], logits_V[i + lane]);
    }
    maxima.insert(maxima.end(), lanes.begin(), lanes.end());
  }
  if (count > maxima.size()) return -kInfinity;
  const auto nth = maxima.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<>());
  return *nth;
}

// The middles of 2^53 equal parts of (0, 1): a vocabulary of 10^5 tokens has tails that 24 bits would never reach.
double uniform(uint64_t seed, int64_t position) {
  const auto words = base::philox(seed, static_cast<uint64_t>(position));
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1p-53;
}

}  // namespace

bool RowSampler::exponentiate(std::span<const float> logits_V, double temperature) {
  shifted_.resize(logits_V.size());
  weights_.resize(logits_V.size());
  row_ = kernels::cpu::log_softmax_row(logits_V.data(), static_cast<int64_t>(logits_V.size()),
                                       static_cast<float>(temperature), shifted_.data(), weights_.data());
  return row_.finite;
}

float RowSampler::log_prob_of(size_t id) const {
  return std::max(kernels::cpu::log_prob(row_, shifted_.data(), static_cast<int64_t>(id)), kLowestLogProb);
}

// Of the weights that are at least `least`; leaves the masses of the blocks behind.
double RowSampler::mass_of(std::span<const float> weights_V, float least) {
  masses_.resize((weights_V.size() + kBlock - 1) / kBlock);
  kernels::cpu::block_masses(weights_V.data(), static_cast<int64_t>(weights_V.size()), least, masses_.data());
  return std::accumulate(masses_.begin(), masses_.end(), 0.0);
}

// The ids that top-k and top-p keep.
std::span<const uint32_t> RowSampler::list_best(std::span<const float> logits_V, const SamplingParams& params) {
  const double total = mass_of(weights_, 0);
  // Ids lighter than (1 - p) / V of the mass together weigh less than 1 - p, so the heavier ones reach p without them.
  const double spare = 0.999 * (1 - params.top_p) * total / static_cast<double>(logits_V.size());
  const float lightest = std::max(static_cast<float>(spare), std::numeric_limits<float>::denorm_min());
  const float lowest = params.top_k > 0 ? reached_by(logits_V, static_cast<size_t>(params.top_k)) : -kInfinity;
  candidates_.resize(logits_V.size());
  auto end = candidates_.begin();
  for (size_t i = 0; i < logits_V.size(); ++i) {  // without a branch on what is kept
    *end = static_cast<uint32_t>(i);
    end += int{weights_[i] >= lightest} & int{logits_V[i] >= lowest};
  }
  const auto better = [&](uint32_t a, uint32_t b) {
    return logits_V[a] != logits_V[b] ? logits_V[a] > logits_V[b] : a < b;
  };
  if (params.top_k > 0 && params.top_k < end - candidates_.begin()) {
    const auto next = candidates_.begin() + params.top_k;
    std::nth_element(candidates_.begin(), next, end, better);
    end = next;
  }
  if (params.top_p >= 1) return {candidates_.begin(), end};
  // Sorted piece by piece: the mass is often reached early.
  double mass = 0;
  for (auto at = candidates_.begin(); at != end;) {
    const auto piece = at + std::min<std::ptrdiff_t>(end - at, 256 + 3 * (at - candidates_.begin()));
    if (piece != end) std::nth_element(at, piece, end, better);
    std::sort(at, piece, better);
    for (; at != piece; ++at) {
      mass += weights_[*at];
      if (mass >= params.top_p * total) return {candidates_.begin(), at + 1};
    }
  }
  return {candidates_.begin(), end};
}

// masses_ are those of weights_V.
size_t RowSampler::walk(std::span<const float> weights_V, float least, double target) const {
  size_t block = 0;
  double before = 0, mass = 0;
  for (size_t b = 0; b < masses_.size() && !(mass > target); ++b) {
    if (masses_[b] == 0) continue;
    block = b;
    before = mass;
    mass += masses_[b];
  }
  size_t last = static_cast<size_t>(row_.best);
  const size_t end = std::min((block + 1) * kBlock, weights_V.size());
  for (size_t i = block * kBlock; i < end && !(before > target); ++i) {
    if (weights_V[i] < least || weights_V[i] == 0) continue;
    before += weights_V[i];
    last = i;
  }
  return last;
}

size_t RowSampler::choose(std::span<const float> logits_V, const SamplingParams& params, double u) {
  const float least = static_cast<float>(params.min_p);  // the highest weight is 1
  if (params.top_p >= 1 && params.top_k <= 0) return walk(weights_, least, u * mass_of(weights_, least));
  kept_weights_.resize(logits_V.size());
  const std::span<const uint32_t> kept = list_best(logits_V, params);
  for (const uint32_t id : kept) kept_weights_[id] = weights_[id];
  const std::span<const float> weights(kept_weights_.data(), logits_V.size());
  const size_t id = walk(weights, least, u * mass_of(weights, least));
  for (const uint32_t each : kept) kept_weights_[each] = 0;
  return id;
}

std::optional<Draw> RowSampler::draw(std::span<const float> logits_V, const SamplingParams& params, uint64_t seed,
                                     int64_t position) {
  CHECK(!logits_V.empty() && position >= 0);
  if (!exponentiate(logits_V, params.log_prob_temperature())) return std::nullopt;
  const size_t id =
      params.greedy() ? static_cast<size_t>(row_.best) : choose(logits_V, params, uniform(seed, position));
  return Draw{static_cast<int32_t>(id), log_prob_of(id)};
}

std::optional<float> RowSampler::log_prob(std::span<const float> logits_V, double temperature, int32_t id) {
  CHECK(id >= 0 && static_cast<size_t>(id) < logits_V.size(), "id {} of {}", id, logits_V.size());
  if (!exponentiate(logits_V, temperature)) return std::nullopt;
  return log_prob_of(static_cast<size_t>(id));
}

}  // namespace rollout
