#include "report/jsonl.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/rng.h"
#include "report/fixture.h"
#include "report/rollouts.h"
#include "report/run_log.h"

namespace report {
namespace {
using base::Json;

TEST(JsonLines, ATornLastLineIsLeftOutByReadersAndCutOffByTheWriter) {
  const auto path = fresh_folder() / "metrics.jsonl";
  append_text(path, "{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"rew");
  EXPECT_EQ(read_lines(path).size(), 2U);
  JsonLines(path).append({{"step", 3}});
  EXPECT_EQ(text_of(path), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST(JsonLines, ATornLineLongerThanAnyBufferIsCutOffToo) {
  const auto path = fresh_folder() / "a.jsonl";
  append_text(path, "{\"step\":1}\n" + std::string(300'000, 'x'));
  JsonLines(path).append({{"step", 2}});
  EXPECT_EQ(text_of(path), "{\"step\":1}\n{\"step\":2}\n");
  const auto all_torn = path.parent_path() / "b.jsonl";
  append_text(all_torn, std::string(100'000, 'x'));
  { const JsonLines repaired(all_torn); }
  EXPECT_EQ(text_of(all_torn), "");
}

TEST(JsonLines, ALineBreakInATextStaysInsideItsLine) {
  const auto path = fresh_folder() / "a.jsonl";
  JsonLines(path).append({{"text", "a\nb \xFF"}});
  const auto lines = read_lines(path);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["text"], "a\nb \xEF\xBF\xBD");
}

TEST(JsonLines, ABrokenLineInTheMiddleIsAnErrorThatNamesIt) {
  const auto path = fresh_folder() / "a.jsonl";
  append_text(path, "{}\n{\n{}\n");
  try {
    read_lines(path);
    FAIL() << "no error";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::Code::corruption);
    EXPECT_NE(std::string(error.what()).find("a.jsonl:2"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(read_lines(path.parent_path() / "no_such.jsonl").empty());
}

TEST(RunLog, AResumedRunShowsNoStepTwice) {
  const auto run = fresh_folder();
  const auto write_steps = [](RunLog& log, int64_t first, int64_t last, double reward) {
    for (int64_t step = first; step <= last; ++step) {
      metrics::StepMetrics metrics(step);
      metrics.set("reward/mean", reward);
      log.write(metrics);
      metrics::EvalRecord record;
      record.step = step;
      record.set = "aime 24";
      log.write(record);
      log.write_samples(step, std::vector<data::Group>{group_of(step, "p", {1, 0})});
      log.write_eval_samples(step, record.set, std::vector<data::Group>{group_of(step, "p", {reward})});
    }
  };
  {
    RunLog log(run, std::nullopt, [] { return "then"; });
    log.write_event(0, "start", "with 3 settings");
    write_steps(log, 1, 5, 0.25);
  }
  append_text(run / "metrics.jsonl", "{\"step\":6,\"rew");
  append_text(run / "rollouts" / "step_000006.jsonl.tmp", "{\"st");
  RunLog log(run, 3, [] { return "now"; });
  log.write_event(3, "resume", "after kill -9");
  write_steps(log, 4, 4, 0.75);

  std::vector<int64_t> steps;
  for (const Json& line : read_lines(run / "metrics.jsonl")) steps.push_back(line["step"]);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(read_lines(run / "metrics.jsonl").back()["reward/mean"], 0.75);
  EXPECT_EQ(read_lines(run / "eval.jsonl").size(), 4U);
  EXPECT_EQ(read_lines(run / "events.jsonl").size(), 2U);
  const auto files = list_rollouts(run / "rollouts");
  ASSERT_EQ(files.size(), 8U);
  EXPECT_EQ(files[3].step, 4);
  EXPECT_EQ(files[7].set, "aime_24");
  EXPECT_EQ(read_rollouts(files[7].path)[0].samples[0].reward, 0.75);
  EXPECT_FALSE(std::filesystem::exists(run / "rollouts" / "step_000006.jsonl.tmp"));
}

// Writes steps without end, and a byte to progress after each; killed from outside.
[[noreturn]] void write_for_ever(const std::filesystem::path& run, int64_t last_step, int progress) {
  RunLog log(run, last_step);
  for (int64_t step = last_step + 1;; ++step) {
    log.write_samples(step, std::vector<data::Group>{group_of(step, std::string(20'000, 'p'), {1, 0, 1, 0})});
    metrics::StepMetrics metrics(step);
    for (int i = 0; i < 500; ++i) metrics.set("figure/" + std::to_string(i), 1.0 / (i + 1));
    log.write(metrics);
    if (::write(progress, "s", 1) != 1) ::_exit(1);
  }
}

TEST(RunLog, EverythingIsReadableAfterKillAtAnyPoint) {
  const auto run = fresh_folder();
  base::Philox random(20240131);
  int64_t last_step = 0;
  for (int kill = 0; kill < 10; ++kill) {
    int progress[2];
    ASSERT_EQ(::pipe(progress), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_for_ever(run, last_step, progress[1]);
    ::close(progress[1]);
    // After two steps, at a random moment of the next few.
    char byte = 0;
    for (int steps = 0; steps < 2; ++steps) ASSERT_EQ(::read(progress[0], &byte, 1), 1);
    ::usleep(static_cast<useconds_t>(random.next_below(60'000)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(progress[0]);
    std::vector<int64_t> steps;
    for_each_line(run / "metrics.jsonl", [&](const Json& line, const std::string& where) {
      const metrics::StepMetrics metrics = metrics::step_metrics_from_json(line, where);
      EXPECT_EQ(metrics.values().size(), 500U);
      steps.push_back(metrics.step());
    });
    for (size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], static_cast<int64_t>(i) + 1);
    const auto files = list_rollouts(run / "rollouts");
    ASSERT_GE(files.size(), steps.size());
    for (const RolloutFile& file : files) EXPECT_EQ(read_rollouts(file.path).at(0).samples.size(), 4U);
    ASSERT_GE(static_cast<int64_t>(steps.size()), last_step + 2);
    // As if the checkpoint of the step before the last had been the last one committed.
    last_step = static_cast<int64_t>(steps.size()) - 1;
  }
}

}  // namespace
}  // namespace report
