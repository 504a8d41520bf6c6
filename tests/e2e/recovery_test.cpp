// A run cannot be lost: killed at any moment and resumed, it ends in the same bytes (decisions 13); told to stop, it
// says how to go on. Cases ck-01, ck-11, ck-13, ev-06 of the areas checkpoint and eval.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "e2e/tiny_run.h"
#include "report/jsonl.h"

namespace e2e {
namespace {
using ::testing::HasSubstr;

// The lines without what differs between two equal runs: seconds.
std::vector<Json> without_times(const fs::path& path) {
  std::vector<Json> lines = report::read_lines(path);
  for (Json& line : lines) {
    std::vector<std::string> times;
    for (const auto& [key, value] : line.items()) {
      if (key.starts_with("time/")) times.push_back(key);
    }
    for (const std::string& key : times) line.erase(key);
  }
  return lines;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Weights, samples, figures and evaluations of two runs, byte for byte.
void expect_same_end(const fs::path& want, const fs::path& got) {
  EXPECT_EQ(base::read_file(want / "model" / "model.safetensors"),
            base::read_file(got / "model" / "model.safetensors"));
  EXPECT_EQ(without_times(want / "metrics.jsonl"), without_times(got / "metrics.jsonl"));
  EXPECT_EQ(without_times(want / "eval.jsonl"), without_times(got / "eval.jsonl"));
  ASSERT_EQ(names_in(want / "rollouts"), names_in(got / "rollouts"));
  for (const std::string& name : names_in(want / "rollouts")) {
    EXPECT_EQ(base::read_file(want / "rollouts" / name), base::read_file(got / "rollouts" / name)) << name;
  }
}

// Starts the run again and again, ending it by a signal after random times, and compares each one that reaches its end.
class Killer {
 public:
  explicit Killer(int signal, const std::vector<std::string>& more = {}) : signal_(signal) {
    settings_.insert(settings_.end(), more.begin(), more.end());
    const auto start = std::chrono::steady_clock::now();
    undisturbed_ = tiny_.finish("undisturbed", settings_);
    whole_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void kill_and_resume(size_t num_kills) {
    ASSERT_EQ(undisturbed_.code, 0) << undisturbed_.output;
    std::mt19937 random(1);
    std::uniform_real_distribution<double> delay_s(0, whole_s_);
    for (bool ended = true; killed_at_.size() < num_kills || !ended;) {
      if (ended) ++num_runs_;
      // After the last kill the run is left alone.
      ended = one_process(killed_at_.size() < num_kills ? delay_s(random) : 600);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "after " << killed_at_.size() << " kills";
    }
    ::testing::Test::RecordProperty("kills", static_cast<int>(killed_at_.size()));
    std::printf("%zu kills in %d runs, each of which ended as the undisturbed one (%.1f s). Killed after steps %s\n",
                killed_at_.size(), num_runs_, whole_s_, ::testing::PrintToString(killed_at_).c_str());
  }

 private:
  // False: it was killed.
  bool one_process(double seconds) {
    const std::string name = "killed_" + std::to_string(num_runs_);
    std::vector<std::string> arguments = settings_;
    if (fs::exists(tiny_.run(name))) arguments.push_back("--resume");
    Program program(tiny_.train(name, arguments), tiny_.folder() / "killed.out");
    if (program.runs_longer_than(seconds)) {
      program.send(signal_);
      program.wait();
      const std::vector<Json> lines = report::read_lines(tiny_.run(name) / "metrics.jsonl");
      killed_at_.push_back(lines.empty() ? Json("start") : lines.back()["step"]);
      return false;
    }
    EXPECT_EQ(program.code(), 0) << program.output();
    if (program.code() == 0) expect_same_end(tiny_.run("undisturbed"), tiny_.run(name));
    return true;
  }

  const int signal_;
  std::vector<std::string> settings_ = {"--run.steps=24", "--warmup.steps=12"};  // enough to hit any of them
  TinyRun tiny_;
  Finished undisturbed_;
  double whole_s_ = 0;
  int num_runs_ = 0;
  std::vector<Json> killed_at_;  // the last step that metrics.jsonl shows
};

TEST(KillAndResume, EightKillsAtRandomPointsChangeNoByte) { Killer(SIGKILL).kill_and_resume(8); }

TEST(KillAndResumeSlow, AHundredKillsAtRandomPointsChangeNoByte) { Killer(SIGKILL).kill_and_resume(100); }

// Beside the kills: a run that is told to stop saves what it has, also between two updates of one step.
TEST(KillAndResume, StepsThatWereDroppedCleanlyChangeNoByte) {
  Killer(SIGINT, {"--actor.epochs=2", "--actor.num_minibatches=2", "--actor.tokens_per_microbatch=24"})
      .kill_and_resume(8);
}

TEST(Resume, FinishedRunIsNotDoneAgain) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.finish("run").code, 0);
  const std::string model = base::read_file(tiny.run("run") / "model" / "model.safetensors");
  const std::vector<Json> figures = report::read_lines(tiny.run("run") / "metrics.jsonl");
  const Finished again = tiny.finish("run", {"--resume"});
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(base::read_file(tiny.run("run") / "model" / "model.safetensors"), model);
  EXPECT_EQ(report::read_lines(tiny.run("run") / "metrics.jsonl"), figures);
}

TEST(Resume, MoreStepsContinueAsOneLongRun) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.finish("long", {"--run.steps=6", "--eval.at_end=false"}).code, 0);
  ASSERT_EQ(tiny.finish("short", {"--run.steps=4", "--eval.at_end=false"}).code, 0);
  const Finished longer = tiny.finish("short", {"--run.steps=6", "--eval.at_end=false", "--resume"});
  ASSERT_EQ(longer.code, 0) << longer.output;
  EXPECT_THAT(longer.output, HasSubstr("changed setting: run.steps: 4 -> 6"));
  expect_same_end(tiny.run("long"), tiny.run("short"));
}

TEST(Resume, SettingsThatAlterTheResultAreRefusedUnlessTold) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.finish("run", {"--run.steps=2"}).code, 0);
  const std::vector<std::string> changed = {"--run.steps=3", "--actor.optimizer.schedule.lr=0.5", "--resume"};
  const Finished refused = tiny.finish("run", changed);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("actor.optimizer.schedule.lr: 0.01 -> 0.5 (alters the result)"));
  EXPECT_THAT(refused.output, HasSubstr("run.steps: 2 -> 3"));
  EXPECT_THAT(refused.output, HasSubstr("--allow_changed"));
  std::vector<std::string> accepted = changed;
  accepted.push_back("--allow_changed");
  const Finished resumed = tiny.finish("run", accepted);
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_EQ(report::read_lines(tiny.run("run") / "metrics.jsonl").back()["policy/learning_rate"], 0.5);
}

TEST(Resume, OtherDataAreRefusedUnlessTold) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.finish("run", {"--run.steps=2"}).code, 0);
  write_rows(tiny.folder() / "problems.jsonl", {{{"prompt", "<bos>ab"}, {"label", "a"}}});
  const Finished refused = tiny.finish("run", {"--run.steps=3", "--resume"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("other rows than when the run was started"));
  EXPECT_EQ(tiny.finish("run", {"--run.steps=3", "--resume", "--allow_changed"}).code, 0);
}

TEST(Start, FolderWithARunInItNeedsResume) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.finish("run", {"--run.steps=0", "--warmup.steps=1"}).code, 0);
  const Finished refused = tiny.finish("run");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("--resume"));
}

TEST(Start, EvaluationAloneChangesNoWeights) {  // ev-06
  const TinyRun tiny;
  ASSERT_EQ(tiny.finish("trained", {"--run.steps=2"}).code, 0);
  const fs::path model = tiny.run("trained") / "model";
  const Finished alone =
      tiny.finish("alone", {"--run.steps=0", "--warmup.steps=0", "--model.config=", "--model.path=" + model.string()});
  EXPECT_EQ(alone.code, 0) << alone.output;
  EXPECT_EQ(base::read_file(model / "model.safetensors"),
            base::read_file(tiny.run("alone") / "model" / "model.safetensors"));
  ASSERT_EQ(report::read_lines(tiny.run("alone") / "eval.jsonl").size(), 1u);
  // The same weights evaluated again, in another run and at another step: the same answers.
  Json last = report::read_lines(tiny.run("trained") / "eval.jsonl").back();
  Json same = report::read_lines(tiny.run("alone") / "eval.jsonl").front();
  EXPECT_EQ(last["step"], 2);
  last.erase("step");
  same.erase("step");
  EXPECT_EQ(last, same);
}

// A run that goes on until it is told to stop, after its first step of learning.
class LongRun {
 public:
  explicit LongRun(const TinyRun& tiny, const std::vector<std::string>& more = {})
      : tiny_(tiny), program_(tiny.train("run", arguments(more)), tiny.folder() / "run.out") {
    for (int i = 0; i < 6000 && num_learned() < 1 && program_.runs_longer_than(0.01); ++i) continue;
    EXPECT_GE(num_learned(), 1u) << program_.output();
  }
  size_t num_learned() const {
    size_t count = 0;
    for (const Json& line : report::read_lines(tiny_.run("run") / "metrics.jsonl")) count += line["step"] > 0;
    return count;
  }
  Program& program() { return program_; }

 private:
  static std::vector<std::string> arguments(std::vector<std::string> more) {
    more.push_back("--run.steps=100000");
    return more;
  }
  const TinyRun& tiny_;
  Program program_;
};

TEST(Stop, CtrlCSavesTheRunAndPrintsTheCommandThatGoesOn) {
  const TinyRun tiny;
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    fs::remove_all(tiny.run("run"));
    LongRun run(tiny, {"--checkpoint.every=1000"});
    run.program().send(signal);
    EXPECT_EQ(run.program().wait(), code) << run.program().output();
    std::smatch match;
    const std::string output = run.program().output();
    ASSERT_TRUE(std::regex_search(output, match, std::regex("furlong (train --resume \\S+)"))) << output;
    const size_t learned = run.num_learned();
    const Finished resumed = run_program({"train", "--resume", tiny.run("run").string(),
                                          "--run.steps=" + std::to_string(learned + 1), "--checkpoint.every=1000"},
                                         tiny.folder() / "resumed.out");
    EXPECT_THAT(match.str(1), HasSubstr(tiny.run("run").string()));
    EXPECT_EQ(resumed.code, 0) << resumed.output;
    EXPECT_EQ(run.num_learned(), learned + 1) << "what was learned before the signal was saved";
  }
}

TEST(Stop, SecondProcessCannotEnterARunThatIsGoingOn) {
  const TinyRun tiny;
  LongRun run(tiny);
  const Finished second = run_program(tiny.train("run", {"--resume"}), tiny.folder() / "second.out");
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.output, HasSubstr("in use by process"));
}

}  // namespace
}  // namespace e2e
