// Which samples share a microbatch: none holds more tokens than the budget, few are needed, and they are close in size.
// Pure function of its arguments; no result of training may depend on it beyond the order of floating-point sums.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace data {

// What becomes of a sample that is longer than the budget on its own.
enum class OverBudget { refuse, alone };

struct Microbatch {
  std::vector<int64_t> samples;  // indices into lengths, ascending, at least one
  int64_t num_tokens = 0;        // their sum; more than the budget only for one sample alone
};

// lengths: tokens of each sample, each > 0. max_tokens > 0. Every sample is in exactly one microbatch; microbatches are
// ordered by their first sample. No samples: no microbatches. First-fit decreasing gives the number of microbatches (at
// most 11/9 of the least possible, plus 6/9; Dosa 2007); they are then levelled by giving the longest sample that is
// left to the emptiest microbatch, if that fits the budget too. Error{invalid_argument}: with OverBudget::refuse, a
// sample longer than the budget (named by its index); a length <= 0.
std::vector<Microbatch> pack_microbatches(std::span<const int64_t> lengths, int64_t max_tokens, OverBudget policy);

}  // namespace data
