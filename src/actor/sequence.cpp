// From groups to sequences with advantages.
#include "actor/sequence.h"

#include <algorithm>
#include <cmath>

#include "actor/advantage.h"
#include "actor/loss/kl.h"
#include "actor/loss/reduction.h"
#include "base/error.h"

namespace actor {

using base::Code;
using base::fail;

namespace {

// what: names the thing in the message.
void check_ids(std::span<const int32_t> ids, int64_t vocab, const std::string& what) {
  for (size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] < 0 || ids[t] >= vocab) {
      fail(Code::invalid_argument, "{}: token {} is id {}, but the vocabulary has {} ids with a token", what, t, ids[t],
           vocab);
    }
  }
}

bool written_by(const data::Sample& sample, std::optional<int64_t> version) {
  return version &&
         std::all_of(sample.versions.begin(), sample.versions.end(), [&](int64_t wrote) { return wrote == *version; });
}

Sequence sequence_of(const data::Group& group, const data::Sample& sample, const LossSettings& settings,
                     const SequenceOptions& options) {
  const std::string what = fmt::format("group {}, sample {}", group.id, sample.index);
  if (group.problem.prompt_ids.empty()) {
    fail(Code::invalid_argument, "{}: the prompt has no tokens; the first response token needs one before it", what);
  }
  check_ids(group.problem.prompt_ids, options.vocab, what + ", prompt");
  check_ids(sample.response_ids, options.vocab, what + ", response");
  if (sample.log_probs.size() != sample.response_ids.size()) {
    fail(Code::invalid_argument, "{}: {} log-probs for {} response tokens; there must be one each", what,
         sample.log_probs.size(), sample.response_ids.size());
  }
  if (!std::isfinite(sample.reward)) {
    fail(Code::invalid_argument, "{}: the reward is {}; give the reward function a failure value", what, sample.reward);
  }
  Sequence sequence;
  sequence.ids = group.problem.prompt_ids;
  sequence.ids.insert(sequence.ids.end(), sample.response_ids.begin(), sample.response_ids.end());
  sequence.prompt_len = static_cast<int64_t>(group.problem.prompt_ids.size());
  sequence.lp_rollout = sample.log_probs;
  sequence.exact = written_by(sample, options.exact_version);
  sequence.experts = sample.experts;
  const bool masked =
      sample.finish == data::FinishReason::length && parse_truncated(settings.truncated) == Truncated::mask;
  sequence.active = !masked && !sample.response_ids.empty();
  const int64_t wanted = sequence.active ? sequence.num_inputs() * options.experts_per_token : 0;
  if (wanted > 0 && static_cast<int64_t>(sample.experts.size()) != wanted) {
    fail(Code::invalid_argument,
         "{}: {} recorded experts, but routing replay needs {} for {} tokens; have the rollout engine record them",
         what, sample.experts.size(), wanted, sequence.num_inputs());
  }
  return sequence;
}

// The reward minus the penalty of its tokens' KL from the reference.
double score_with_kl(double reward, const Sequence& sequence, const LossSettings& settings) {
  if (sequence.num_response() == 0) return reward;
  const at::Tensor old_N = at::tensor(sequence.lp_old, at::kFloat).to(at::kDouble);
  const at::Tensor ref_N = at::tensor(sequence.lp_ref, at::kFloat).to(at::kDouble);
  const at::Tensor kl_N =
      kl_terms(old_N, ref_N, at::ones_like(old_N, at::kBool), parse_kl_kind(settings.kl_type)).contiguous();
  const std::span<const double> kl(kl_N.data_ptr<double>(), static_cast<size_t>(kl_N.numel()));
  double score = 0;
  for (const double r : token_rewards(reward, kl, std::vector<bool>(kl.size(), true), settings.kl_reward_coef))
    score += r;
  return score;
}

}  // namespace

std::vector<Sequence> sequences_of(std::span<const data::Group> groups, const LossSettings& settings,
                                   const SequenceOptions& options) {
  std::vector<Sequence> sequences;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const data::Sample& sample : groups[g].samples) {
      sequences.push_back(sequence_of(groups[g], sample, settings, options));
      sequences.back().group = g;
    }
  }
  return sequences;
}

void set_advantages(std::span<const data::Group> groups, const LossSettings& settings,
                    std::vector<Sequence>& sequences) {
  const Estimator estimator = parse_estimator(settings.advantage);
  const bool penalise = parse_truncated(settings.truncated) == Truncated::penalise;
  size_t next = 0;
  for (const data::Group& group : groups) {
    const size_t first = next;
    std::vector<double> scores;
    for (const data::Sample& sample : group.samples) {
      const Sequence& sequence = sequences[next++];
      scores.push_back(settings.kl_reward_coef > 0 ? score_with_kl(sample.reward, sequence, settings) : sample.reward);
    }
    const std::vector<double> advantages = group_advantages(scores, estimator);
    for (size_t i = 0; i < advantages.size(); ++i) {
      const bool truncated = group.samples[i].finish == data::FinishReason::length;
      sequences[first + i].advantage = advantages[i] - (penalise && truncated ? settings.truncated_penalty : 0);
    }
  }
}

std::vector<Sequence> sequences_of(std::span<const SftExample> examples, int64_t vocab) {
  std::vector<Sequence> sequences;
  std::vector<SampleCount> counts;
  for (size_t i = 0; i < examples.size(); ++i) {
    const SftExample& example = examples[i];
    if (example.prompt_ids.empty() || example.response_ids.empty()) {
      fail(Code::invalid_argument, "demonstration {}: {} prompt and {} response tokens; both need at least one", i,
           example.prompt_ids.size(), example.response_ids.size());
    }
    check_ids(example.prompt_ids, vocab, fmt::format("demonstration {}, prompt", i));
    check_ids(example.response_ids, vocab, fmt::format("demonstration {}, response", i));
    Sequence sequence;
    sequence.ids = example.prompt_ids;
    sequence.ids.insert(sequence.ids.end(), example.response_ids.begin(), example.response_ids.end());
    sequence.prompt_len = static_cast<int64_t>(example.prompt_ids.size());
    counts.push_back({sequence.num_response(), static_cast<int64_t>(i)});
    sequences.push_back(std::move(sequence));
  }
  const std::vector<double> weights = token_weights(counts, Reduction::token);
  for (size_t i = 0; i < sequences.size(); ++i) sequences[i].weight = weights[i];
  return sequences;
}

std::vector<Sequence> sequences_of(std::span<const ScoreRequest> requests, int64_t vocab) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < requests.size(); ++i) {
    const ScoreRequest& request = requests[i];
    check_ids(request.ids, vocab, fmt::format("request {}", i));
    if (request.from < 1 || request.from > static_cast<int64_t>(request.ids.size())) {
      fail(Code::invalid_argument,
           "request {}: scoring from position {} of {} tokens; it must be from 1 to {}, since the first "
           "token has none before it",
           i, request.from, request.ids.size(), request.ids.size());
    }
    Sequence sequence;
    sequence.ids = request.ids;
    sequence.prompt_len = request.from;
    sequence.active = sequence.num_response() > 0;
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

}  // namespace actor
