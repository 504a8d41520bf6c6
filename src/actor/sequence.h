// A prompt with one answer as the actor computes with it, and the way from groups of samples to a list of them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actor/loss/settings.h"
#include "data/sample.h"

namespace actor {

struct Sequence {
  std::vector<int32_t> ids;           // prompt, then response
  int64_t prompt_len = 0;             // >= 1; the first response token is predicted from the last prompt token
  size_t group = 0;                   // index of its group in the step
  bool active = true;                 // false: masked; counts as a sample, its tokens take no part
  bool exact = false;                 // lp_rollout is what this policy computes, to the bit: lp_old is taken from there
  std::span<const uint16_t> experts;  // of routing replay, as in data::Sample; owned by the groups
  double advantage = 0;
  double weight = 0;  // of each of its tokens in the loss
  // One value per response token; empty where the step does not need it.
  std::vector<float> lp_rollout, lp_old, lp_ref, entropy;

  int64_t num_response() const { return static_cast<int64_t>(ids.size()) - prompt_len; }
  // Tokens of its forward pass: the last one predicts nothing and is not run.
  int64_t num_inputs() const { return static_cast<int64_t>(ids.size()) - 1; }
};

// Settings of sequences_of.
struct SequenceOptions {
  int64_t vocab = 0;  // ids must be below it
  // Samples that this version of the weights wrote alone have exact log-probs: the engine runs the actor's profile.
  std::optional<int64_t> exact_version;
  int64_t experts_per_token = 0;  // > 0: routing replay, with so many experts over all layers
};

// One entry per sample in order of groups and samples. Truncated answers are inactive under loss.truncated = mask; so
// are answers without tokens. Errors: invalid_argument naming group and sample for an empty prompt, an id outside the
// vocabulary, log-probs that are not one per token, a reward that is not finite, or experts that are missing.
std::vector<Sequence> sequences_of(std::span<const data::Group> groups, const LossSettings& settings,
                                   const SequenceOptions& options);

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
