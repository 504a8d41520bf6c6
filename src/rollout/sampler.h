// Sampling from one row of f32 logits. A draw is a pure function of (row, parameters, seed, position): it does not
// depend on the rows around it, on threads or on the order of calls. No torch.
//
// Method: y = z / T, its shifts, exponentials w and log-prob as kernels/cpu/log_softmax.h has them: the bits that the
// actor computes for the same row. The token is found by inverse CDF over the kept ids in ascending order: a target u *
// (sum of kept w), where u has 53 bits of Philox(key: seed, counter: absolute position of the token to be drawn)
// (decisions 9). All sums are f64: first over the masses of blocks of 1024 ids (16 lanes each; lanes, then blocks, in
// ascending order) up to the first block that passes the target, then id by id inside it, from the mass of the blocks
// before; if rounding keeps those below the target, the block's last kept id is drawn. Kept are the tokens that pass
// top-k, top-p and min-p, each judged on the full distribution at T (joint, as SGLang); top-p keeps the shortest list
// in the order (higher score, lower id; decisions 6) whose mass reaches it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/log_softmax.h"
#include "rollout/request.h"

namespace rollout {

// Log-probs are never below this; what a token of probability 0 gets. (JSON has no infinity; the official API shows the
// same.)
constexpr float kLowestLogProb = -9999.0f;

struct Draw {
  int32_t id = 0;
  float log_prob = 0;  // log_softmax(z / T) over the full row, before any filter; greedy: T = 1
};

// What is computed from a row once: y - max y and its exponentials. Reusable memory; one per thread.
class RowSampler {
 public:
  // -infinity marks ids that do not exist. nullopt: the row has a NaN or +infinity, is -infinity throughout, or
  // overflows when divided by T. params must have passed check(); position >= 0.
  std::optional<Draw> draw(std::span<const float> logits_V, const SamplingParams& params, uint64_t seed,
                           int64_t position);

  // Log-prob of a given id at a temperature > 0. nullopt as above.
  std::optional<float> log_prob(std::span<const float> logits_V, double temperature, int32_t id);

 private:
  bool exponentiate(std::span<const float> logits_V, double temperature);
  float log_prob_of(size_t id) const;
  double mass_of(std::span<const float> weights_V, float least);
  size_t choose(std::span<const float> logits_V, const SamplingParams& params, double u);
  size_t walk(std::span<const float> weights_V, float least, double target) const;
  std::span<uint64_t> list_candidates(std::span<const float> logits_V, const SamplingParams& params, double total);
  std::span<const uint64_t> list_best(std::span<const float> logits_V, const SamplingParams& params);

  std::vector<float> shifted_, weights_;  // y - max y; its exponential
  kernels::cpu::RowStatistics row_;
  std::vector<double> masses_;        // of each block of ids
  std::vector<uint64_t> candidates_;  // keys: score and id
  std::vector<float> kept_weights_;   // all 0 between draws
};

}  // namespace rollout
