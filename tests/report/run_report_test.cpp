#include "report/run_report.h"

#include "base/error.h"
#include "metrics/names.h"
#include "report/fixture.h"
#include "report/sample_choice.h"
#include "report/text_chart.h"

namespace report {
namespace {

// A run of twenty steps whose reward rises from 0.4 to 0.9, with one skipped update, one resume and two evaluations.
std::filesystem::path sample_run() {
  const auto run = fresh_folder();
  RunLog log(run, std::nullopt, [] { return "2026-01-31T12:00:00Z"; });
  for (int64_t step = 1; step <= 20; ++step) {
    metrics::StepMetrics metrics(step);
    metrics.set(metrics::kRewardMean, 0.4 + 0.5 * static_cast<double>(step - 1) / 19);
    metrics.set(metrics::kResponseTruncated, step == 2 ? 0.125 : 0.0);
    metrics.set(metrics::kGapMean, step == 13 ? 0.02 : 0.005);
    metrics.set(metrics::kGapP99, 0.05);
    metrics.set(metrics::kGapMax, step == 4 ? 1.5 : 0.5);
    metrics.set(metrics::kPolicySkipped, step == 9 ? 1 : 0);
    metrics.set(metrics::kTimeGenerate, 2);
    metrics.set(metrics::kTimeTrain, 1);
    metrics.set(metrics::kTimeStep, 4);
    log.write(metrics);
  }
  for (const int64_t step : {0, 20}) {
    metrics::EvalRecord record;
    record.step = step;
    record.set = "held_out";
    record.problems = 2;
    record.answers = 4;
    record.pass_at = {{1, step == 0 ? 0.464 : 0.945}, {2, step == 0 ? 0.805 : 1.0}};
    record.greedy = step == 0 ? 0.34 : 0.99;
    record.by["carries"]["2"] = step == 0 ? 0.08 : 0.96;
    log.write(record);
    const double right = step == 0 ? 0 : 1;
    log.write_eval_samples(step, "held_out",
                           std::vector<data::Group>{group_of(1, "changes", {0, right}), group_of(2, "stays", {1, 1}),
                                                    group_of(3, "turns", {right, right})});
  }
  log.write_samples(
      20, std::vector<data::Group>{group_of(50, "first\nprompt", {1, 0.25}), group_of(51, "second", {0, -1})});
  log.write_event(11, "resume", "from checkpoint 11");
  return run;
}

void expect_all(const std::string& text, const std::vector<std::string>& parts) {
  size_t at = 0;
  for (const std::string& part : parts) {
    const size_t found = text.find(part, at);
    EXPECT_NE(found, std::string::npos) << "missing, or not in this order: " << part << "\nin\n" << text;
    if (found != std::string::npos) at = found + part.size();
  }
}

TEST(RunReport, ShowsEverySectionInOrder) {
  const std::string text = run_report(sample_run(), {{"actor.lr", "2e-4", "1e-6"}});
  expect_all(text, {"20 steps, 1 to 20, 1 min 20 s, 2 evaluations",
                    "Settings that differ",
                    "actor.lr  2e-4  (default 1e-6)",
                    "Reward (mean of each step)",
                    "0.9 |",
                    "first 2 steps: 0.4132   last 2: 0.8868",
                    "Evaluations",
                    "held_out (2 problems)",
                    "after step  pass@1  pass@2  greedy",
                    "0            0.464   0.805   0.340",
                    "20           0.945   1.000   0.990",
                    "pass@1 by carries",
                    "2         0.080    0.960",
                    "Learning",
                    "Gap between",
                    "Time",
                    "whole step",
                    "1 min 20 s",
                    "100.0%",
                    "generate",
                    "40 s",
                    "50.0%",
                    "train",
                    "Events",
                    "step 9: the update was not finite",
                    "resume: from checkpoint 11",
                    "Samples",
                    "Best of training step 20",
                    "Worst of",
                    "Most changed between evaluations of held_out after steps 0 and 20"});
}

TEST(RunReport, NamesTheWorstStepOfTheGap) {
  const std::string text = gap_section(read_run(sample_run()));
  expect_all(text, {"mean", "0.00575", "0.02", "13", "p99", "max", "0.55", "1.5", "4"});
}

TEST(RunReport, NamesTheStepWithMostTruncation) {
  const std::string text = learning_section(read_run(sample_run()));
  expect_all(text, {"response/truncated", "0.125", "2"});
}

TEST(RunReport, AFolderWithoutARunIsAnErrorAndAnEmptyRunIsNot) {
  const auto folder = fresh_folder();
  EXPECT_THROW(run_report(folder, {}), base::Error);
  { const RunLog log(folder, std::nullopt); }
  EXPECT_NE(run_report(folder, {}).find("no step finished yet"), std::string::npos);
}

TEST(RunReport, ARunThatWasKilledInTheMiddleOfALineIsReported) {
  const auto run = sample_run();
  append_text(run / "metrics.jsonl", "{\"step\":21,\"rew");
  append_text(run / "events.jsonl", "{\"st");
  append_text(run / "rollouts" / "step_000021.jsonl.tmp", "{\"st");
  EXPECT_NE(run_report(run, {}).find("20 steps, 1 to 20"), std::string::npos);
}

TEST(SampleChoice, TakesOneSamplePerProblemAndTheMostChangedFirst) {
  const SampleChoice choice = choose_samples(sample_run() / "rollouts", 3);
  ASSERT_EQ(choice.best.size(), 2U);
  EXPECT_EQ(choice.best[0].sample.reward, 1);
  EXPECT_EQ(choice.best[1].sample.reward, 0);
  ASSERT_EQ(choice.worst.size(), 2U);
  EXPECT_EQ(choice.worst[0].sample.reward, -1);
  EXPECT_EQ(choice.worst[1].sample.reward, 0.25);
  ASSERT_EQ(choice.changed.size(), 2U) << "what stayed the same is no change";
  EXPECT_EQ(choice.changed[0].prompt, "turns");
  EXPECT_EQ(choice.changed[0].mean_before, 0);
  EXPECT_EQ(choice.changed[0].mean_after, 1);
  EXPECT_EQ(choice.changed[1].prompt, "changes");
}

TEST(SampleChoice, WithoutEvaluationsTrainingStepsAreCompared) {
  const auto folder = fresh_folder();
  RunLog log(folder, std::nullopt);
  log.write_samples(1, std::vector<data::Group>{group_of(1, "a", {0, 0}), group_of(2, "b", {0, 1})});
  log.write_samples(9, std::vector<data::Group>{group_of(8, "c", {0, 0}), group_of(9, "b", {1, 1})});
  data::Group again = group_of(9, "b", {1, 1});
  again.problem.id = "set.jsonl:2";  // the same row in a later epoch: another group, the same problem
  log.write_samples(9, std::vector<data::Group>{group_of(8, "c", {0, 0}), again});
  const SampleChoice choice = choose_samples(folder / "rollouts", 3);
  ASSERT_EQ(choice.changed.size(), 1U);
  EXPECT_EQ(choice.changed[0].prompt, "b");
  EXPECT_EQ(choice.change_source, "training steps 1 and 9");
}

TEST(TextChart, PutsTheExtremesOnTheFirstAndLastRow) {
  EXPECT_EQ(text_chart({{1, 0.0}, {2, 1.0}, {3, 0.5}}, 64, 3),
            "          1 | *\n"
            "        0.5 |  *\n"
            "          0 |*\n"
            "            +---\n"
            "       step  1 3\n");
  EXPECT_EQ(text_chart({}), "");
}

TEST(TextChart, AveragesWhatSharesAColumn) {
  std::vector<std::pair<int64_t, double>> points;
  for (int i = 0; i < 1000; ++i) points.emplace_back(i, i % 2);  // every mean is 0.5: a flat line
  const std::string chart = text_chart(points, 50, 5);
  EXPECT_NE(chart.find("0.5 |" + std::string(50, '*')), std::string::npos) << chart;
}

TEST(TextChart, TextsForOneLineHaveNoControlCharacters) {
  EXPECT_EQ(one_line("a\nb\tc\x1b[2K", 100), "a\\nb\\tc\\x1b[2K");
  EXPECT_EQ(one_line("\xE2\x88\x92\xE2\x88\x92", 4), "\xE2\x88\x92...");
}

TEST(TextTable, AlignsNumbersToTheRight) {
  EXPECT_EQ(text_table({"name", "value"}, {{"a", "1"}, {"long name", "10.5"}}),
            "  name       value\n"
            "  a              1\n"
            "  long name   10.5\n");
}

}  // namespace
}  // namespace report
