// Inverse-CDF sampling with a fixed order of sums.
#include "rollout/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace rollout {
namespace {

constexpr size_t kBlock = kernels::cpu::kVocabBlock;
constexpr uint64_t kIdBits = 0xffffffff;  // of a key
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
      for (size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = logits_V[i + lane] > lanes[lane] ? logits_V[i + lane] : lanes[lane];
      }
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

// Ids that may be kept by top-k and top-p, all those that are among them, as keys that ascend in the order (higher
// score, lower id).
std::span<uint64_t> RowSampler::list_candidates(std::span<const float> logits_V, const SamplingParams& params,
                                                double total) {
  // Ids lighter than (1 - p) / V of the mass together weigh less than 1 - p, so the heavier ones reach p without them.
  const double spare = 0.999 * (1 - params.top_p) * total / static_cast<double>(logits_V.size());
  const float lightest = std::max(static_cast<float>(spare), std::numeric_limits<float>::denorm_min());
  const float lowest = params.top_k > 0 ? reached_by(logits_V, static_cast<size_t>(params.top_k)) : -kInfinity;
  if (candidates_.size() < logits_V.size()) candidates_.resize(logits_V.size());
  size_t count = 0;
  for (size_t i = 0; i < logits_V.size(); ++i) {  // no branch: what is kept cannot be foretold
    candidates_[count] = i;
    count += size_t{weights_[i] >= lightest} & size_t{logits_V[i] >= lowest};
  }
  const std::span<uint64_t> found(candidates_.data(), count);
  for (uint64_t& key : found) {
    const uint32_t bits = std::bit_cast<uint32_t>(logits_V[key] + 0.0f);  // -0 equals 0
    const uint32_t falling = bits >> 31 ? bits : ~bits & 0x7fffffffu;
    key |= uint64_t{falling} << 32;
  }
  return found;
}

// The ids that top-k and top-p keep, as keys; their low 32 bits are the ids.
std::span<const uint64_t> RowSampler::list_best(std::span<const float> logits_V, const SamplingParams& params) {
  const double total = params.top_p < 1 ? mass_of(weights_, 0) : 0;
  const std::span<uint64_t> found = list_candidates(logits_V, params, total);
  const auto first = found.begin();
  auto end = found.end();
  if (params.top_k > 0 && params.top_k < end - first) {
    std::nth_element(first, first + params.top_k, end);
    end = first + params.top_k;
  }
  if (params.top_p >= 1) return {first, end};
  const auto weight = [&](uint64_t key) { return double{weights_[key & kIdBits]}; };
  const double target = params.top_p * total;
  // Halves the range that holds the last id to keep, then sorts what is left of it.
  double mass = 0;
  auto begin = first;
  while (end - begin > 256) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end);
    double half = 0;
    for (auto at = begin; at != middle; ++at) half += weight(*at);
    if (mass + half >= target) {
      end = middle;
    } else {
      mass += half;
      begin = middle;
    }
  }
  std::sort(begin, end);
  while (begin != end && mass < target) mass += weight(*begin++);
  return {first, begin};
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
  const std::span<const uint64_t> kept = list_best(logits_V, params);
  for (const uint64_t key : kept) kept_weights_[key & kIdBits] = weights_[key & kIdBits];
  const std::span<const float> weights(kept_weights_.data(), logits_V.size());
  const size_t id = walk(weights, least, u * mass_of(weights, least));
  for (const uint64_t key : kept) kept_weights_[key & kIdBits] = 0;
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
