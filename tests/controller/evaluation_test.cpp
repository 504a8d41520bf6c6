// Cases ev-03, ev-04, ev-05, ev-08 of area eval.
#include "controller/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/expect_error.h"
#include "controller/fakes.h"

namespace controller {
namespace {
using ::testing::ElementsAre;
using ::testing::Pair;

EvalSet set_of(int64_t rows, int64_t num_samples) {
  EvalSet set;
  set.settings.name = "held_out";
  set.settings.num_samples = num_samples;
  for (int64_t row = 0; row < rows; ++row) {
    data::Problem& problem = set.problems.emplace_back();
    problem.prompt = "problem " + std::to_string(row);
    problem.label = std::to_string(row);
    problem.metadata = {{"carries", row % 2}};
    problem.prompt_ids = {1, 2};
  }
  return set;
}

ScoreGroups by(RewardOf reward) {
  FakeGenerator unused;
  return fake_parts(unused, std::move(reward)).score;
}

EvalResult run(const EvalSet& set, FakeGenerator& generator, RewardOf reward, uint64_t seed = 3) {
  return *evaluate_set(set, 10, seed, generator, by(std::move(reward)), never, no_progress);
}

TEST(Evaluation, ThirtyRowsWithSixteenSamplesAre480Answers) {
  FakeGenerator generator;
  const EvalResult result =
      run(set_of(30, 16), generator, [](int64_t, int64_t index) { return index < 4 ? 1.0 : 0.0; });
  EXPECT_EQ(result.record.problems, 30);
  EXPECT_EQ(result.record.answers, 480);
  EXPECT_DOUBLE_EQ(result.record.pass_at.front().second, 4.0 / 16.0);
  std::vector<int64_t> ks;
  for (const auto& [k, value] : result.record.pass_at) ks.push_back(k);
  EXPECT_THAT(ks, ElementsAre(1, 2, 4, 8, 16));
}

TEST(Evaluation, PassAtKIsTheUnbiasedEstimateOfEachProblem) {
  FakeGenerator generator;
  // Problem 0: one of four right; problem 1: all right. pass@2 = (1 - C(3,2)/C(4,2) + 1) / 2.
  const EvalResult result =
      run(set_of(2, 4), generator, [](int64_t id, int64_t index) { return id == 1 || index == 2 ? 1.0 : 0.0; });
  EXPECT_THAT(result.record.pass_at, ElementsAre(Pair(1, (0.25 + 1) / 2), Pair(2, (0.5 + 1) / 2), Pair(4, 1)));
}

TEST(Evaluation, RowsThatAreRepeatedAreOneProblem) {
  FakeGenerator generator;
  EvalSet set = set_of(3, 2);
  set.problems.push_back(set.problems[0]);
  const EvalResult result = run(set, generator, [](int64_t, int64_t) { return 0.0; });
  EXPECT_EQ(result.record.problems, 3);
  EXPECT_EQ(result.record.answers, 8);
  std::set<uint64_t> seeds;
  for (const data::Group& group : result.groups) {
    for (const data::Sample& sample : group.samples) seeds.insert(sample.seed);
  }
  EXPECT_EQ(seeds.size(), 8u) << "repeated rows get noise of their own";
}

TEST(Evaluation, SameWeightsGetTheSameNoiseAtEveryStep) {
  FakeGenerator generator;
  const EvalSet set = set_of(4, 2);
  const auto seeds = [&](int64_t step, uint64_t run_seed) {
    std::vector<uint64_t> all;
    const auto result =
        evaluate_set(set, step, run_seed, generator, by([](int64_t, int64_t) { return 1.0; }), never, no_progress);
    for (const data::Group& group : result->groups) {
      for (const data::Sample& sample : group.samples) all.push_back(sample.seed);
    }
    return all;
  };
  EXPECT_EQ(seeds(0, 3), seeds(10, 3));
  EXPECT_NE(seeds(0, 3), seeds(0, 4));
}

TEST(Evaluation, GreedyPassAsksOnceWithoutSampling) {
  FakeGenerator generator;
  EvalSet set = set_of(4, 3);
  set.settings.greedy = true;
  set.settings.sampling.temperature = 0.7;
  const EvalResult result = run(set, generator, [](int64_t id, int64_t) { return id < 1 ? 1.0 : 0.0; });
  ASSERT_EQ(generator.samplings.size(), 2u);
  EXPECT_EQ(generator.samplings[0].temperature, 0.7);
  EXPECT_TRUE(generator.samplings[1].greedy());
  EXPECT_EQ(result.greedy.size(), 4u);
  EXPECT_EQ(result.greedy[0].samples.size(), 1u);
  EXPECT_EQ(result.record.greedy, 0.25);
  EXPECT_EQ(result.record.answers, 12) << "greedy answers are not in pass@k";
}

TEST(Evaluation, PassAt1IsBrokenDownByAMetadataKey) {
  FakeGenerator generator;
  EvalSet set = set_of(5, 2);
  set.settings.by = {"carries", "colour"};
  const EvalResult result = run(set, generator, [](int64_t id, int64_t) { return id % 2 == 0 ? 1.0 : 0.0; });
  EXPECT_THAT(result.record.by.at("carries"), ElementsAre(Pair("0", 1), Pair("1", 0)));
  EXPECT_THAT(result.record.by.at("colour"), ElementsAre(Pair("(none)", 0.6)));
}

TEST(Evaluation, AnswersWithoutAScoreAreReportedAsMissing) {  // ev-05
  FakeGenerator generator;
  const ScoreGroups score = [](std::span<data::Group> groups, const StopAsked&) {
    rewards::ScoreTotals totals;
    totals.graded = 2;
    totals.failed = 1;
    for (data::Group& group : groups) group.samples.front().reward = group.id == 0 ? 1 : 0;
    return totals;
  };
  const EvalResult result = *evaluate_set(set_of(3, 1), 0, 3, generator, score, never, no_progress);
  EXPECT_EQ(result.record.missing, 1);
  EXPECT_EQ(result.record.answers, 3);
  EXPECT_DOUBLE_EQ(result.record.pass_at.front().second, 1.0 / 3);
}

TEST(Evaluation, StoppedSetHasNoResult) {
  FakeGenerator generator;
  EXPECT_FALSE(evaluate_set(
      set_of(3, 1), 0, 3, generator, by([](int64_t, int64_t) { return 0.0; }), [] { return true; }, no_progress));
}

TEST(Evaluation, EmptySetAndSharedNameAreErrorsAtTheStart) {  // ev-08
  const std::vector<EvalSet> one_row = {set_of(1, 8)};
  check_sets(one_row);
  test::expect_error(base::Code::invalid_argument, {"held_out", "no problems"},
                     [] { check_sets(std::vector<EvalSet>{set_of(0, 8)}); });
  test::expect_error(base::Code::invalid_argument, {"two sets have the name \"held_out\""}, [] {
    check_sets(std::vector<EvalSet>{set_of(1, 8), set_of(2, 8)});
  });
}

}  // namespace
}  // namespace controller
