// A prompt with one answer as the actor computes with it, and the way from groups of samples to a list of them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "actor/loss/settings.h"
#include "data/sample.h"

namespace actor {

struct Sequence {
  std::vector<int32_t> ids;  // prompt, then response
  int64_t prompt_len = 0;    // >= 1; the first response token is predicted from the last prompt token
  size_t group = 0;          // index of its group in the step
  bool active = true;        // false: masked; counts as a sample, its tokens take no part
  double advantage = 0;
  double weight = 0;  // of each of its tokens in the loss
  // One value per response token; empty where the step does not need it.
  std::vector<float> lp_rollout, lp_old, lp_ref, entropy;

  int64_t num_response() const { return static_cast<int64_t>(ids.size()) - prompt_len; }
  // Tokens of its forward pass: the last one predicts nothing and is not run.
  int64_t num_inputs() const { return static_cast<int64_t>(ids.size()) - 1; }
};

// One entry per sample in order of groups and samples. Truncated answers are inactive under loss.truncated = mask; so
// are answers without tokens. vocab: ids must be below it. Errors: invalid_argument naming group and sample for an
// empty prompt, an id outside the vocabulary, log-probs that are not one per token, or a reward that is not finite.
std::vector<Sequence> sequences_of(std::span<const data::Group> groups, const LossSettings& settings, int64_t vocab);

// Fills in the advantages: group statistics over all answers, then the treatment of truncated ones. With KL in the
// reward (lp_old and lp_ref are set) the score of an answer is its reward minus coef * sum of kl over its tokens.
void set_advantages(std::span<const data::Group> groups, const LossSettings& settings,
                    std::vector<Sequence>& sequences);

// A demonstration: learn to say the response after the prompt. Both need at least one token.
struct SftExample {
  std::vector<int32_t> prompt_ids, response_ids;
};

// With the weights of a mean over all response tokens. Errors: invalid_argument naming the example's index.
std::vector<Sequence> sequences_of(std::span<const SftExample> examples, int64_t vocab);

struct ScoreRequest {
  std::vector<int32_t> ids;
  int64_t from = 1;  // first position that is scored, >= 1
};

// Each as a prompt of `from` tokens; a request may end there and have nothing to score. Errors: invalid_argument naming
// the request's index.
std::vector<Sequence> sequences_of(std::span<const ScoreRequest> requests, int64_t vocab);

}  // namespace actor
