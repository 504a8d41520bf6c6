// Checks of sampling parameters and the names of reasons.
#include "rollout/request.h"

#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace rollout {

using base::Code;

void SamplingParams::check(int64_t vocab_size) const {
  if (!(std::isfinite(temperature) && temperature >= 0)) {
    base::fail(Code::invalid_argument, "temperature is {}; it must be a finite number, 0 (greedy) or more",
               temperature);
  }
  if (!(top_p > 0 && top_p <= 1)) {
    base::fail(Code::invalid_argument, "top_p is {}; it must be above 0 and at most 1 (1 keeps all tokens)", top_p);
  }
  if (top_k != -1 && top_k < 1) {
    base::fail(Code::invalid_argument, "top_k is {}; it must be -1 (all tokens) or at least 1", top_k);
  }
  if (!(min_p >= 0 && min_p <= 1)) base::fail(Code::invalid_argument, "min_p is {}; it must be in 0..1", min_p);
  if (max_new_tokens < 1) {
    base::fail(Code::invalid_argument,
               "max_new_tokens is {}; it must be at least 1 (to score a prompt, ask for a score)", max_new_tokens);
  }
  for (const std::string& text : stop) {
    if (text.empty())
      base::fail(Code::invalid_argument, "stop holds an empty text, which would end every answer at once");
  }
  for (const int64_t id : stop_token_ids) {
    if (id < 0 || id >= vocab_size) {
      base::fail(Code::invalid_argument, "stop_token_ids holds {}; ids of this model are 0..{}", id, vocab_size - 1);
    }
  }
}

std::vector<uint64_t> group_seeds(uint64_t seed, int64_t num_samples) {
  std::vector<uint64_t> seeds;
  for (int64_t i = 0; i < num_samples; ++i) seeds.push_back(base::derive_seed(seed, static_cast<uint64_t>(i)));
  return seeds;
}

std::string to_string(Ended ended) {
  switch (ended) {
    case Ended::stop_token:
      return "stop_token";
    case Ended::stop_string:
      return "stop_string";
    case Ended::max_new_tokens:
      return "max_new_tokens";
    case Ended::context:
      return "context";
    case Ended::cancelled:
      return "cancelled";
    case Ended::not_finite:
      return "not_finite";
    case Ended::scored:
      return "scored";
  }
  return "unknown";
}

data::FinishReason finish_reason(Ended ended) {
  switch (ended) {
    case Ended::stop_token:
    case Ended::stop_string:
    case Ended::scored:
      return data::FinishReason::stop;
    case Ended::max_new_tokens:
    case Ended::context:
      return data::FinishReason::length;
    case Ended::cancelled:
    case Ended::not_finite:
      break;
  }
  return data::FinishReason::cancelled;
}

}  // namespace rollout
