#include "actor/stop_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace actor {
namespace {

using testing::HasSubstr;

StopFacts with_reward(double reward) { return {1, 0, 0.01, reward}; }

TEST(StopRules, SkippedUpdatesInARowStopTheRunAndAGoodOneForgivesThem) {
  StopRules rules({.max_skipped = 3});
  EXPECT_FALSE(rules.observe(1, {1, 1, {}, {}}));
  EXPECT_FALSE(rules.observe(2, {1, 1, {}, {}}));
  EXPECT_FALSE(rules.observe(3, {1, 0, {}, {}}));
  EXPECT_FALSE(rules.observe(4, {1, 1, {}, {}}));
  EXPECT_FALSE(rules.observe(5, {0, 0, {}, {}}));  // a step without an update says nothing
  EXPECT_FALSE(rules.observe(6, {1, 1, {}, {}}));
  const auto reason = rules.observe(7, {1, 1, {}, {}});
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, HasSubstr("step 7"));
  EXPECT_THAT(*reason, HasSubstr("stop.max_skipped"));
  EXPECT_THAT(*reason, HasSubstr("policy/grad_norm"));
}

TEST(StopRules, AGapAboveTheThresholdStopsTheRun) {
  StopRules rules({.max_gap = 0.1});
  EXPECT_FALSE(rules.observe(1, {1, 0, 0.1, {}}));
  const auto reason = rules.observe(2, {1, 0, 0.11, {}});
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, HasSubstr("step 2"));
  EXPECT_THAT(*reason, HasSubstr("gap/p99"));
  EXPECT_FALSE(StopRules({.max_gap = 0}).observe(1, {1, 0, 99, {}}));
}

TEST(StopRules, ARewardThatFallsFarBelowItsBestStopsTheRun) {
  StopRules rules({.reward_window = 2, .reward_collapse = 0.5});
  EXPECT_FALSE(rules.observe(1, with_reward(0.8)));
  EXPECT_FALSE(rules.observe(2, with_reward(0.8)));
  EXPECT_FALSE(rules.observe(3, with_reward(0.1)));  // mean .45, best .8: one bad step is not a collapse
  const auto reason = rules.observe(4, with_reward(0.1));
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, HasSubstr("step 4"));
  EXPECT_THAT(*reason, HasSubstr("stop.reward_collapse"));
}

TEST(StopRules, ARewardThatWasNeverPositiveHasNothingToCollapseFrom) {
  StopRules rules({.reward_window = 1, .reward_collapse = 0.5});
  EXPECT_FALSE(rules.observe(1, with_reward(-0.5)));
  EXPECT_FALSE(rules.observe(2, with_reward(-1)));
}

TEST(StopRules, StateGoesOnWhereItStopped) {
  const StopSettings settings{.max_skipped = 2, .reward_window = 2, .reward_collapse = 0.5};
  StopRules before(settings);
  before.observe(1, {1, 1, {}, 0.8});
  StopRules after(settings);
  after.load(base::parse_json(before.state().dump(), "test"), "test");
  EXPECT_EQ(before.state(), after.state());
  EXPECT_TRUE(after.observe(2, {1, 1, {}, 0.8}));
  EXPECT_THROW(after.load(base::Json{{"rewards", "many"}}, "test"), base::Error);
}

}  // namespace
}  // namespace actor
