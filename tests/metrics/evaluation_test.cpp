#include "metrics/evaluation.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace metrics {
namespace {

EvalAnswer answer(const std::string& problem, std::optional<double> reward) {
  EvalAnswer result;
  result.problem = problem;
  result.reward = reward;
  return result;
}

TEST(Evaluation, RowsRepeatedInTheFileAreOneProblem) {  // ev-03
  // 30 rows of 16 answers, problem i solved by i % 17 of them; each row comes twice with half of its answers.
  EvalTally whole, repeated;
  double mean = 0;
  for (int round = 0; round < 2; ++round) {
    for (int row = 0; row < 30; ++row) {
      for (int i = round * 8; i < round * 8 + 8; ++i) {
        const double reward = i < row % 17 ? 1 : 0;
        mean += reward / 480;
        repeated.add(answer("p" + std::to_string(row), reward));
      }
    }
  }
  for (int row = 29; row >= 0; --row) {
    for (int i = 0; i < 16; ++i) whole.add(answer("p" + std::to_string(row), i < row % 17 ? 1 : 0));
  }
  const EvalRecord record = repeated.record(10, "aime", {1, 4, 16});
  EXPECT_EQ(record.problems, 30);
  EXPECT_EQ(record.answers, 480);
  EXPECT_NEAR(record.pass_at[0].second, mean, 1e-12) << "pass@1 is avg@16";
  EXPECT_EQ(record.pass_at[2].second, 28.0 / 30) << "problems 0 and 17 have no right answer";
  EXPECT_EQ(record, whole.record(10, "aime", {16, 4, 1})) << "the order of the answers changes nothing";
}

TEST(Evaluation, AMissingRewardCountsAsWrongAndIsReported) {  // ev-05
  EvalTally tally;
  tally.add(answer("p", 1.0));
  tally.add(answer("p", std::nullopt));
  tally.add(answer("p", 0.0));
  const EvalRecord record = tally.record(0, "set", {1});
  EXPECT_EQ(record.answers, 3);
  EXPECT_EQ(record.missing, 1);
  EXPECT_DOUBLE_EQ(record.pass_at[0].second, 1.0 / 3);
  EXPECT_DOUBLE_EQ(record.reward_mean, 1.0 / 3);
}

TEST(Evaluation, AnEmptySetIsAnErrorAndOneRowIsNot) {  // ev-08
  EvalTally tally;
  EXPECT_THROW(tally.record(0, "empty", {1}), base::Error);
  tally.add(answer("only", 1.0));
  EXPECT_EQ(tally.record(0, "one", {1}).pass_at[0].second, 1);
  EXPECT_THROW(tally.record(0, "one", {2}), base::Error) << "pass@2 of one answer";
}

TEST(Evaluation, BreaksPassAt1DownByTagAndKeepsGreedyApart) {
  EvalTally tally;
  const auto add = [&](const std::string& problem, const std::string& carries, double first, double second) {
    for (const double reward : {first, second}) {
      EvalAnswer one = answer(problem, reward);
      one.tags = {{"carries", carries}};
      one.truncated = reward == 0;
      one.length = 10;
      tally.add(one);
    }
  };
  add("a", "0", 1, 1);
  add("b", "2", 1, 0);
  add("c", "2", 0, 0);
  tally.add_greedy(answer("a", 1));
  tally.add_greedy(answer("b", 0));
  const EvalRecord record = tally.record(20, "held_out", {1, 2});
  EXPECT_EQ(record.by.at("carries").at("0"), 1);
  EXPECT_EQ(record.by.at("carries").at("2"), 0.25);
  EXPECT_EQ(record.greedy, 0.5);
  EXPECT_EQ(record.truncated, 0.5);
  EXPECT_EQ(record.length_mean, 10);
  EXPECT_EQ(record.pass_at, (std::vector<std::pair<int64_t, double>>{{1, 0.5}, {2, 2.0 / 3}}));

  const base::Json json = to_json(record);
  EXPECT_EQ(json["pass@2"], 2.0 / 3);
  EXPECT_EQ(json["by"]["carries"]["2"], 0.25);
  EXPECT_EQ(eval_record_from_json(base::parse_json(base::to_line(json), "x"), "x"), record);
  StepMetrics metrics(20);
  write_to(record, metrics);
  EXPECT_EQ(metrics.find("eval/held_out/pass@1"), 0.5);
  EXPECT_EQ(metrics.find("eval/held_out/greedy"), 0.5);
}

TEST(Evaluation, ABrokenRecordIsAnErrorThatNamesThePlace) {
  for (
      const char* text :
      {"{}", "[]", "{\"step\": \"x\"}", "3",
       R"({"step":1,"set":"","problems":1,"answers":1,"missing":0,"pass@1":"x","reward":0,"truncated":0,"length":0})"}) {
    try {
      eval_record_from_json(base::parse_json(text, "t"), "eval.jsonl:3");
      FAIL() << text;
    } catch (const base::Error& error) {
      EXPECT_NE(std::string(error.what()).find("eval.jsonl:3"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace metrics
