// What a sample's reward is worth against the other answers to the same problem. Pure functions in f64 over one group;
// a group is all answers to one problem, complete: truncated answers take part in the statistics and are dealt with
// afterwards.
//
// Sources: GRPO, arXiv 2402.03300 eq. 3; Dr. GRPO, arXiv 2503.20783 (no std); RLOO, arXiv 2402.14740 eq. 6;
// decisions 12.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace actor {

enum class Estimator {
  grpo,     // (r - mean) / (std + 1e-6), std with n - 1
  dr_grpo,  // r - mean
  rloo,     // r - mean of the others
};
// "grpo", "dr_grpo", "rloo". Error{invalid_argument} for another name.
Estimator parse_estimator(const std::string& name);

struct GroupStats {
  double mean = 0;
  double std = 0;     // sample std (n - 1); 0 for one value
  int64_t count = 0;  // rollouts
  bool equal = true;  // all rewards are the same value: advantages are exactly 0, whatever rounding says
};

// Two-pass statistics of one group. rollout: which rollout each entry belongs to (the fragments of one rollout carry
// the same reward and count once); empty: each entry is its own rollout. Errors: invalid_argument for a reward that is
// not finite or for fragments of one rollout with different rewards.
GroupStats group_stats(std::span<const double> rewards, std::span<const int64_t> rollout = {});

// One advantage per entry. A group with equal rewards, and a group of one, give exactly 0 (decisions 12).
std::vector<double> group_advantages(std::span<const double> rewards, Estimator estimator,
                                     std::span<const int64_t> rollout = {});

// What happens to an answer that ran into the length limit.
enum class Truncated {
  keep,      // nothing
  penalise,  // its advantage is lowered by a constant
  mask,      // its tokens leave the loss; the sample still counts in the number of samples
};
// "keep", "penalise", "mask". Error{invalid_argument} for another name.
Truncated parse_truncated(const std::string& name);

}  // namespace actor
