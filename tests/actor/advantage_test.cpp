#include "actor/advantage.h"

#include <map>

#include "actor/rl_vectors.h"
#include "base/error.h"

namespace actor {
namespace {

using actor_test::flatten;
using actor_test::Json;
using actor_test::kLimitF64;

// The vectors list samples of many groups in any order; a group is handed over as one span.
struct Outcome {
  std::vector<double> advantage, mean, std;
};

Outcome by_group(const Json& inputs, Estimator estimator) {
  const std::vector<double> rewards = flatten(inputs["rewards"]);
  std::map<double, std::vector<size_t>> members;
  const std::vector<double> group = flatten(inputs["group"]);
  for (size_t i = 0; i < group.size(); ++i) members[group[i]].push_back(i);
  Outcome outcome{std::vector<double>(rewards.size()), std::vector<double>(rewards.size()),
                  std::vector<double>(rewards.size())};
  for (const auto& [id, indices] : members) {
    std::vector<double> own;
    std::vector<int64_t> rollout;
    for (size_t i : indices) {
      own.push_back(rewards[i]);
      if (inputs.contains("rollout")) rollout.push_back(inputs["rollout"][i]);
    }
    const std::vector<double> advantages = group_advantages(own, estimator, rollout);
    const GroupStats stats = group_stats(own, rollout);
    for (size_t j = 0; j < indices.size(); ++j) {
      outcome.advantage[indices[j]] = advantages[j];
      outcome.mean[indices[j]] = stats.mean;
      outcome.std[indices[j]] = stats.std;
    }
  }
  return outcome;
}

// scale_floor: see expect_near, as a multiple of the largest reward of the case.
void check_kind(const std::string& kind, Estimator estimator, double scale_floor = 0) {
  for (const auto& vector : actor_test::vectors_of(kind)) {
    const Outcome outcome = by_group(vector.inputs, estimator);
    double largest = 0;
    for (const double reward : flatten(vector.inputs["rewards"])) largest = std::max(largest, std::abs(reward));
    actor_test::expect_near(outcome.advantage, vector.expected["adv"], kLimitF64, scale_floor * largest,
                            vector.id + " adv");
    if (vector.expected.contains("mean")) {
      actor_test::expect_near(outcome.mean, vector.expected["mean"], kLimitF64, 0, vector.id + " mean");
      actor_test::expect_near(outcome.std, vector.expected["std"], kLimitF64, 0, vector.id + " std");
    }
  }
}

TEST(Advantage, GroupVectorsAgree) { check_kind("adv_group", Estimator::grpo); }
TEST(Advantage, DrGrpoVectorsAgree) { check_kind("adv_drgrpo", Estimator::dr_grpo); }
// These vectors subtract sums of rewards from one another, and so are exact to a few ulps of the rewards only.
TEST(Advantage, RlooVectorsAgree) {
  check_kind("adv_rloo", Estimator::rloo, 4 * std::numeric_limits<double>::epsilon() / kLimitF64);
}

TEST(Advantage, RlooKeepsItsDigitsUnderACommonOffset) {
  const std::vector<double> advantages = group_advantages(std::vector<double>{1e6, 1e6 + 1, 1e6, 1e6}, Estimator::rloo);
  EXPECT_DOUBLE_EQ(advantages[1], 1);
  EXPECT_DOUBLE_EQ(advantages[0], -1.0 / 3);
}

TEST(Advantage, EqualRewardsGiveExactlyZero) {  // case adv-01
  for (const Estimator estimator : {Estimator::grpo, Estimator::dr_grpo, Estimator::rloo}) {
    for (const double reward : {0.0, 1.0, 0.1}) {
      const std::vector<double> rewards(4, reward);
      EXPECT_EQ(group_advantages(rewards, estimator), std::vector<double>(4, 0.0));
      EXPECT_TRUE(group_stats(rewards).equal);
    }
    EXPECT_EQ(group_advantages(std::vector<double>{0.7}, estimator), std::vector<double>{0.0});
  }
}

TEST(Advantage, NormalisedAdvantagesStayWithinTheirBound) {  // case adv-04
  const std::vector<double> rewards{0.35, 0.35, 0.35, 0.35, 0.35, 0.35, 0.35, 0.0};
  const double bound = 7 / std::sqrt(8.0);  // (n-1)/sqrt(n) for the sample std
  const std::vector<double> advantages = group_advantages(rewards, Estimator::grpo);
  for (const double advantage : advantages) EXPECT_LE(std::abs(advantage), bound);
  EXPECT_NEAR(advantages.back(), -bound, 1e-4);  // the 1e-6 beside a std of 0.12
}

TEST(Advantage, EachGroupHasItsOwnStatistics) {  // case adv-05
  for (const std::vector<double>& rewards : {std::vector<double>{0, 1}, std::vector<double>{10, 11}}) {
    const std::vector<double> advantages = group_advantages(rewards, Estimator::grpo);
    EXPECT_NEAR(advantages[0], -0.7071, 1e-4);
    EXPECT_NEAR(advantages[1], 0.7071, 1e-4);
  }
}

TEST(Advantage, RefusesRewardsThatAreNotFiniteOrDisagreeWithinARollout) {
  EXPECT_THROW(group_stats(std::vector<double>{1, std::nan("")}), base::Error);
  EXPECT_THROW(group_stats(std::vector<double>{1, 0.5}, std::vector<int64_t>{3, 3}), base::Error);
  EXPECT_THROW(parse_estimator("gae"), base::Error);
  EXPECT_THROW(parse_truncated("drop"), base::Error);
}

}  // namespace
}  // namespace actor
