#include "actor/step_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "metrics/names.h"

namespace actor {
namespace {

double value(const Metrics& metrics, std::string_view name) { return metrics.at(std::string(name)); }

// A microbatch of `count` tokens in which lp_new - lp_ref and the entropy are constant.
void add_microbatch(StepSums& sums, int64_t count, double kl, double entropy, double weight) {
  LossSettings settings;
  settings.kl_type = "k1";
  settings.kl_loss_coef = 0.5;
  TokenTensors tokens;
  tokens.active_N = at::ones({count}, at::kBool);
  tokens.weight_N = at::full({count}, weight);
  tokens.sample_N = at::zeros({count}, at::kLong);
  tokens.num_samples = 1;
  tokens.advantage_N = at::zeros({count});
  tokens.lp_new_N = at::full({count}, -1.0);
  tokens.lp_old_N = tokens.lp_new_N;
  tokens.lp_rollout_N = tokens.lp_new_N;
  tokens.lp_ref_N = tokens.lp_new_N - kl;
  tokens.entropy_N = at::full({count}, entropy);
  sums.add(policy_objective(tokens, settings), tokens, settings);
}

TEST(StepMetrics, MeansAreOverTheTokensOfTheStepNotOfTheLastMicrobatch) {  // case loss-05
  StepSums sums;
  add_microbatch(sums, 1, 0, 2, 0.25);
  add_microbatch(sums, 3, 1, 1, 0.25);
  sums.add_update(2, 1e-3, false);
  Metrics metrics;
  sums.report(metrics);
  EXPECT_NEAR(value(metrics, metrics::kLossKl), 0.5 * 0.75, 1e-6);
  EXPECT_NEAR(value(metrics, metrics::kPolicyEntropy), 5.0 / 4, 1e-6);
  EXPECT_NEAR(value(metrics, metrics::kLossTotal), 0.5 * 0.75, 1e-6);
  EXPECT_EQ(value(metrics, metrics::kPolicyGradNorm), 2);
  EXPECT_EQ(value(metrics, metrics::kTisMean), 1);
  EXPECT_FALSE(metrics.contains(std::string(metrics::kLossEntropyBonus)));
}

TEST(StepMetrics, SkippedUpdatesAreCountedAndLeaveTheNormOut) {
  StepSums sums;
  add_microbatch(sums, 2, 0, 0, 0.5);
  sums.add_update(4, 1e-3, false);
  sums.add_update(std::nan(""), 1e-3, true);
  Metrics metrics;
  sums.report(metrics);
  EXPECT_EQ(value(metrics, metrics::kPolicySkipped), 1);
  EXPECT_EQ(value(metrics, metrics::kPolicyGradNorm), 4);
}

TEST(StepMetrics, NothingMeasuredIsAbsent) {
  Metrics metrics;
  StepSums().report(metrics);
  Gap().report(metrics);
  add_sample_metrics({}, metrics);
  EXPECT_TRUE(metrics.empty());
}

TEST(StepMetrics, LengthsAreOfTheRealAnswersAndTheMaximumIsOfAll) {  // cases loss-06, loss-08
  std::vector<data::Group> groups(2);
  for (size_t g = 0; g < 2; ++g) {
    for (const size_t length : {size_t{100}, g == 0 ? size_t{300} : size_t{900}}) {
      data::Sample sample;
      sample.response_ids.resize(length);
      sample.reward = length == 900 ? 1 : 0;
      sample.finish = length == 900 ? data::FinishReason::length : data::FinishReason::stop;
      groups[g].samples.push_back(sample);
    }
  }
  Metrics metrics;
  add_sample_metrics(groups, metrics);
  EXPECT_EQ(value(metrics, metrics::kResponseLengthMax), 900);
  EXPECT_EQ(value(metrics, metrics::kResponseLengthMean), 350);
  EXPECT_EQ(value(metrics, metrics::kResponseTruncated), 0.25);
  EXPECT_EQ(value(metrics, metrics::kRewardMean), 0.25);
  EXPECT_DOUBLE_EQ(value(metrics, metrics::kRewardStd), 0.5);  // n - 1
}

TEST(StepMetrics, TheGapTakesTheNearestRankAndLeavesOutWhatIsNotFinite) {
  Gap gap;
  std::vector<float> actor_lp, rollout_lp;
  for (int i = 1; i <= 200; ++i) {
    actor_lp.push_back(-1);
    rollout_lp.push_back(-1 - 0.01f * static_cast<float>(i));
  }
  actor_lp.push_back(-std::numeric_limits<float>::infinity());
  rollout_lp.push_back(-1);
  gap.add(actor_lp, rollout_lp);
  Metrics metrics;
  gap.report(metrics);
  EXPECT_NEAR(value(metrics, metrics::kGapMean), 1.005, 1e-6);
  EXPECT_NEAR(value(metrics, metrics::kGapP99), 1.98, 1e-6);
  EXPECT_NEAR(value(metrics, metrics::kGapMax), 2.0, 1e-6);
}

}  // namespace
}  // namespace actor
