// From losses of tokens to the loss of a step. A token's weight is fixed by totals of the whole step before it is cut
// into microbatches, so that the sum over microbatches, and its gradient, is the same for every packing.
//
// Letters: N tokens of a microbatch. Sources: GRPO (per sample), arXiv 2402.03300; DAPO (per token), arXiv 2503.14476;
// Dr. GRPO (constant), arXiv 2503.20783; decisions 12, 15.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;

enum class Reduction {
  sample,    // mean over the tokens of a sample, then over samples
  token,     // mean over all tokens of the step
  constant,  // sum / (samples * max_tokens)
};
// "sample", "token", "constant". Error{invalid_argument} for another name.
Reduction parse_reduction(const std::string& name);

// One sample of the step (dropped groups are not listed: they leave numerator and denominator).
struct SampleCount {
  int64_t active = 0;   // tokens that take part; 0 for a masked sample, which still counts as a sample
  int64_t rollout = 0;  // fragments of one rollout share a denominator and count once
};

// The weight of each active token of a sample: its sum over the active tokens of the step is at most 1. max_tokens: the
// constant length of Reduction::constant, > 0 there. A step without active tokens has weights that multiply nothing.
std::vector<double> token_weights(std::span<const SampleCount> samples, Reduction reduction, int64_t max_tokens = 0);

// Value where active, 0 elsewhere; a NaN or infinity elsewhere is never read, in neither direction.
Tensor select_active(const Tensor& active_N, const Tensor& value_N);

// sum over active tokens of weight * value; a scalar of value's dtype.
Tensor reduce_tokens(const Tensor& value_N, const Tensor& weight_N, const Tensor& active_N);

}  // namespace actor
