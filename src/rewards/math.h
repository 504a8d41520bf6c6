// Rewards for mathematics with a known answer, as DAPO and DeepScaleR score them. Both look for the answer only after a
// closed thought, never evaluate anything, and take numbers by exact value. Where the public scorers are known to score
// a right answer as wrong or the other way round, these follow mathematics: 025 equals 25, integers beyond 2^53 keep
// their digits, 2/4 equals 1/2, U+2212 is a minus, a label that is no integer is compared as text instead of raising,
// control tokens at the end are not read. What needs algebra (x+1 against 1+x) counts as different.
#pragma once
#include <string>
#include <string_view>

#include "rewards/reward.h"

namespace rewards {

// --- DAPO: the "Answer:" line of the last 300 characters; score 1 or -1. Source: arXiv 2503.14476, its public
// verifier.

struct Verdict {
  bool correct = false;
  std::string predicted;  // normal form of what was found; empty if nothing was
  bool found = false;
};

// The last "Answer:" line of solution against ground_truth; with extract_truth, against the last box in ground_truth.
Verdict is_correct_minerva(std::string_view solution, std::string_view ground_truth, bool extract_truth = false);

// The last box of the last 100 characters against ground_truth, as text.
Verdict is_correct_strict_box(std::string_view solution, std::string_view ground_truth);

// Whether a final answer and a label are the same after normalize_final_answer, as numbers or as text. Empty is never
// right.
bool same_final_answer(std::string_view answer, std::string_view label);

Score math_dapo(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample);

// --- DeepScaleR: the last box after the thought; score 1 or 0. Source: the public reward of DeepScaleR (rllm).

// Whether two answers are the same: as numbers, by one of two normal forms, element by element for tuples and intervals
// with equal brackets, in any order for sets in \{ \}, or after dropping "name =" from one of them.
bool same_expression(std::string_view answer, std::string_view label);

// The last box of solution against a label, which may itself be boxed.
bool grade_boxed(std::string_view solution, std::string_view label);

Score math_deepscaler(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample);

// Whether a label can be matched at all by the two above: not blank, not nan or an infinity.
bool is_gradable_label(std::string_view label);

}  // namespace rewards
