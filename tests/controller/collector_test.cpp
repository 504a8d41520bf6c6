// Cases adv-03, dyn-02, dyn-03 of area dynamic_sampling.
#include "controller/collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/expect_error.h"
#include "controller/fakes.h"

namespace controller {
namespace {
using ::testing::ElementsAre;
using ::testing::IsEmpty;

data::Group group_with(const std::vector<double>& rewards) {
  data::Group group;
  for (const double reward : rewards) group.samples.emplace_back().reward = reward;
  return group;
}

std::vector<int64_t> ids_of(const std::vector<data::Group>& groups) {
  std::vector<int64_t> ids;
  for (const data::Group& group : groups) ids.push_back(group.id);
  return ids;
}

// Even ids have mixed rewards, odd ids are solved throughout.
double odd_are_equal(int64_t id, int64_t index) { return id % 2 == 1 || index == 0 ? 1 : 0; }

RolloutSettings small(int64_t prompts) {
  RolloutSettings settings;
  settings.prompts_per_step = prompts;
  settings.samples_per_prompt = 2;
  return settings;
}

RolloutSettings dynamic(int64_t prompts, int64_t per_round, int64_t max_rounds) {
  RolloutSettings settings = small(prompts);
  settings.dynamic_sampling = {.on = true, .groups_per_round = per_round, .max_rounds = max_rounds};
  return settings;
}

TEST(EqualRewards, EightTimesOneTenthIsEqualThoughItsRoundedDeviationIsNotZero) {  // adv-03
  EXPECT_TRUE(equal_rewards(group_with(std::vector<double>(8, 0.1))));
  EXPECT_FALSE(equal_rewards(group_with({0.1, 0.1, 0.1000001})));
  EXPECT_TRUE(equal_rewards(group_with({1})));
}

TEST(Collector, WithoutDynamicSamplingEachStepTakesTheNextProblems) {
  FakeGenerator generator;
  Collector collector(small(3), 7, fake_parts(generator, odd_are_equal));
  EXPECT_THAT(ids_of(collector.collect(0, never, no_progress)->groups), ElementsAre(0, 1, 2));
  EXPECT_THAT(ids_of(collector.collect(1, never, no_progress)->groups), ElementsAre(3, 4, 5));
  EXPECT_EQ(collector.state().next_id, 6);
}

TEST(Collector, DroppedGroupsAreReplacedUntilTheStepIsFull) {  // dyn-02
  FakeGenerator generator;
  Collector collector(dynamic(4, 4, 8), 7, fake_parts(generator, odd_are_equal));
  const Collected collected = *collector.collect(0, never, no_progress);
  EXPECT_THAT(ids_of(collected.groups), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(ids_of(collected.dropped), ElementsAre(1, 3, 5));
  EXPECT_EQ(collected.num_rounds, 2);
  EXPECT_EQ(collected.num_tokens, 2 * 4 * 2);
}

TEST(Collector, ProblemsBeyondTheNeedAreAskedAgainWhenTheirAnswersWouldBeStale) {  // dyn-03
  FakeGenerator generator;
  Collector collector(dynamic(4, 9, 8), 7, fake_parts(generator, odd_are_equal));
  EXPECT_THAT(ids_of(collector.collect(0, never, no_progress)->groups), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(collector.state().surplus, IsEmpty());
  EXPECT_EQ(collector.state().next_id, 7);
  EXPECT_THAT(ids_of(collector.collect(1, never, no_progress)->groups), ElementsAre(8, 10, 12, 14));
}

TEST(Collector, GroupsBeyondTheNeedStayForTheNextStepWhileFresh) {  // dyn-03
  FakeGenerator generator;
  RolloutSettings settings = dynamic(4, 13, 8);
  settings.max_staleness = 1;
  Collector collector(settings, 7, fake_parts(generator, odd_are_equal));
  EXPECT_THAT(ids_of(collector.collect(0, never, no_progress)->groups), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(ids_of(collector.state().surplus), ElementsAre(7, 8, 9, 10, 11, 12));
  generator.asked.clear();
  generator.serving = 1;
  const Collected second = *collector.collect(1, never, no_progress);
  EXPECT_THAT(ids_of(second.groups), ElementsAre(8, 10, 12, 14));
  EXPECT_EQ(second.groups.front().samples.front().versions.front(), 0) << "taken from the surplus of step 0";
  EXPECT_EQ(second.groups.back().samples.front().versions.front(), 1);
  EXPECT_EQ(generator.asked.front(), 13) << "what lay ready was not asked again";
}

TEST(Collector, SurplusThatIsTooOldIsAskedAgain) {
  FakeGenerator generator;
  RolloutSettings settings = dynamic(1, 3, 8);
  settings.max_staleness = 1;
  Collector collector(settings, 7, fake_parts(generator, [](int64_t, int64_t index) { return double(index); }));
  for (int64_t step = 0; step < 2; ++step) {
    generator.serving = step;
    collector.collect(step, never, no_progress);
  }
  // Step 2 may train on version 1 and newer; groups 1 and 2 were answered by version 0.
  EXPECT_THAT(ids_of(collector.state().surplus), ElementsAre(3));
  EXPECT_EQ(collector.state().next_id, 2);
}

TEST(Collector, EachProblemIsTrainedOnOrDroppedExactlyOnce) {
  for (const int64_t staleness : {0, 1, 2}) {
    FakeGenerator generator;
    RolloutSettings settings = dynamic(4, 7, 8);
    settings.max_staleness = staleness;
    Collector collector(settings, 7, fake_parts(generator, odd_are_equal));
    std::vector<int64_t> used;
    for (int64_t step = 0; step < 5; ++step) {
      generator.serving = step;
      const Collected collected = *collector.collect(step, never, no_progress);
      for (const auto* groups : {&collected.groups, &collected.dropped}) {
        for (const data::Group& group : *groups) {
          used.push_back(group.id);
          EXPECT_LE(step - oldest_version(group), staleness);
        }
      }
    }
    std::sort(used.begin(), used.end());
    for (size_t i = 0; i < used.size(); ++i) EXPECT_EQ(used[i], static_cast<int64_t>(i)) << "staleness " << staleness;
  }
}

TEST(Collector, AfterTheLastRoundTheStepGoesOnWithWhatThereIs) {
  FakeGenerator generator;
  Collector collector(dynamic(4, 4, 1), 7, fake_parts(generator, odd_are_equal));
  const Collected collected = *collector.collect(0, never, no_progress);
  EXPECT_THAT(ids_of(collected.groups), ElementsAre(0, 2));
  EXPECT_THAT(ids_of(collected.dropped), ElementsAre(1, 3));
}

TEST(Collector, NothingToLearnFromIsAnEmptyStepNotAnEndlessOne) {
  FakeGenerator generator;
  Collector collector(dynamic(4, 4, 3), 7, fake_parts(generator, [](int64_t, int64_t) { return 0.0; }));
  const Collected collected = *collector.collect(0, never, no_progress);
  EXPECT_THAT(collected.groups, IsEmpty());
  EXPECT_EQ(collected.dropped.size(), 12u);
}

TEST(Collector, SeedsFollowFromRunSeedGroupAndIndexAlone) {
  const auto seeds = [](uint64_t run_seed, int64_t per_round) {
    FakeGenerator generator;
    Collector collector(dynamic(3, per_round, 8), run_seed, fake_parts(generator, odd_are_equal));
    std::map<std::pair<int64_t, int64_t>, uint64_t> all;
    const Collected collected = *collector.collect(0, never, no_progress);
    for (const data::Group& group : collected.groups) {
      for (const data::Sample& sample : group.samples) all[{group.id, sample.index}] = sample.seed;
    }
    return all;
  };
  EXPECT_EQ(seeds(7, 3), seeds(7, 5)) << "over-sampling changes no seed";
  EXPECT_NE(seeds(7, 3), seeds(8, 3));
  std::set<uint64_t> different;
  for (const auto& [sample, seed] : seeds(7, 3)) different.insert(seed);
  EXPECT_EQ(different.size(), 6u);
}

TEST(Collector, StoppedStepLeavesTheStateOfBefore) {
  FakeGenerator generator;
  Collector collector(small(3), 7, fake_parts(generator, odd_are_equal));
  collector.collect(0, never, no_progress);
  EXPECT_FALSE(collector.collect(
      1, [] { return true; }, no_progress));
  EXPECT_EQ(collector.state().next_id, 3);
}

TEST(Collector, StateSurvivesATripThroughText) {
  FakeGenerator generator;
  RolloutSettings settings = dynamic(2, 6, 8);
  settings.max_staleness = 1;
  Collector collector(settings, 7, fake_parts(generator, odd_are_equal));
  collector.collect(0, never, no_progress);
  const base::Json json = collector.state().to_json();
  const CollectorState again = CollectorState::from_json(base::parse_json(base::to_line(json), "test"), "test");
  EXPECT_EQ(again.next_id, collector.state().next_id);
  EXPECT_FALSE(again.surplus.empty());
  EXPECT_EQ(again.to_json(), json);
}

TEST(Collector, DamagedStateIsRefused) {
  for (const char* text : {"[]", "{}", R"({"next_id": -1, "surplus": []})", R"({"next_id": 1, "surplus": 2})"}) {
    test::expect_error(base::Code::corruption, {"run_state.json"},
                       [&] { CollectorState::from_json(base::parse_json(text, "test"), "run_state.json"); });
  }
}

}  // namespace
}  // namespace controller
