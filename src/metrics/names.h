// The names of the figures that a step reports: the keys of metrics.jsonl, of the console line and of `furlong report`.
// A figure that was not measured in a step is absent from its record; it is never written as 0. Units are in the
// comments; means over tokens count active tokens only, standard deviations divide by n-1.
#pragma once
#include <string>
#include <string_view>

namespace metrics {

inline constexpr std::string_view kRewardMean = "reward/mean";  // over the samples of the groups that were trained on
inline constexpr std::string_view kRewardStd = "reward/std";    // over the same samples
// Fractions of the collected groups whose rewards are all equal: at the best value seen in the step, and below it.
inline constexpr std::string_view kRewardSolved = "reward/solved";
inline constexpr std::string_view kRewardUnsolved = "reward/unsolved";
// Samples that got the failure value instead of a score.
inline constexpr std::string_view kRewardFailures = "reward/failures";

inline constexpr std::string_view kResponseLengthMean = "response/length_mean";  // tokens, stop token included
inline constexpr std::string_view kResponseLengthMax = "response/length_max";    // tokens
inline constexpr std::string_view kResponseTruncated = "response/truncated";     // fraction ended by a length limit

inline constexpr std::string_view kGroupsCollected = "groups/collected";  // groups scored for this step
inline constexpr std::string_view kGroupsDropped = "groups/dropped";      // of these, dropped by dynamic sampling
inline constexpr std::string_view kRolloutTokens = "rollout/tokens";      // tokens generated for this step

inline constexpr std::string_view kLossPolicy = "loss/policy";
inline constexpr std::string_view kLossKl = "loss/kl";
inline constexpr std::string_view kLossEntropyBonus = "loss/entropy_bonus";
inline constexpr std::string_view kLossTotal = "loss/total";
inline constexpr std::string_view kLossSft = "loss/sft";  // nats per token, supervised warm-up only

inline constexpr std::string_view kPolicyEntropy = "policy/entropy";             // nats per token
inline constexpr std::string_view kPolicyClipFraction = "policy/clip_fraction";  // fraction of tokens
inline constexpr std::string_view kPolicyKl = "policy/kl";  // old policy to new, mean of old - new log-prob
inline constexpr std::string_view kPolicyGradNorm = "policy/grad_norm";  // before clipping
inline constexpr std::string_view kPolicyLearningRate = "policy/learning_rate";
inline constexpr std::string_view kPolicySkipped =
    "policy/skipped";  // 1 when the update was not finite and was dropped
inline constexpr std::string_view kPolicyNonfinite =
    "policy/nonfinite_tokens";  // active tokens whose log-ratio counted as 0

inline constexpr std::string_view kTisMean = "tis/mean";  // weight after truncation
inline constexpr std::string_view kTisClipFraction = "tis/clip_fraction";

// |actor log-prob - rollout log-prob| over the active tokens of the step, both under the weights that sampled.
inline constexpr std::string_view kGapMean = "gap/mean";
inline constexpr std::string_view kGapP99 = "gap/p99";
inline constexpr std::string_view kGapMax = "gap/max";

inline constexpr std::string_view kStalenessMean =
    "staleness/mean";  // versions between the weights that sampled and those trained
inline constexpr std::string_view kStalenessMax = "staleness/max";

// Seconds of wall time per phase of the step. Phases that overlap (max_staleness > 0) add up to more than time/step_s.
inline constexpr std::string_view kTimeGenerate = "time/generate_s";
inline constexpr std::string_view kTimeReward = "time/reward_s";
inline constexpr std::string_view kTimeLogProb = "time/log_prob_s";
inline constexpr std::string_view kTimeTrain = "time/train_s";
inline constexpr std::string_view kTimePublish = "time/publish_s";
inline constexpr std::string_view kTimeEval = "time/eval_s";
inline constexpr std::string_view kTimeCheckpoint = "time/checkpoint_s";
inline constexpr std::string_view kTimeStep = "time/step_s";
inline constexpr std::string_view kTimePrefix = "time/";

// Evaluation figures of a set: "eval/<set>/pass@4", "eval/<set>/greedy", "eval/<set>/truncated".
inline constexpr std::string_view kEvalPrefix = "eval/";
inline std::string eval_name(std::string_view set, std::string_view figure) {
  return std::string(kEvalPrefix) + std::string(set) + "/" + std::string(figure);
}

}  // namespace metrics
