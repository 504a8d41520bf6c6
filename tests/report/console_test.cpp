#include "report/console.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>
#include <thread>

#include "metrics/names.h"

namespace report {
namespace {

// A terminal in memory with a clock that stands until it is moved.
struct Screen {
  std::string text;
  double now = 100;
  int writes = 0;
  bool tty = true;

  Terminal terminal() {
    return {[this](std::string_view part) {
              text += part;
              ++writes;
            },
            tty, [] { return 60; }};
  }
  base::Clock clock() {
    return {[this] { return now; }};
  }
};

std::string last_line(const std::string& text) { return text.substr(text.rfind('\r') + 1); }

TEST(Console, TheBarIsRedrawnAtMostTenTimesASecond) {
  Screen screen;
  Console console({}, screen.terminal(), screen.clock());
  Console::Phase phase = console.phase("generate", 256, "samples");
  EXPECT_EQ(screen.writes, 1);
  for (int i = 1; i <= 1000; ++i) {  // two seconds
    screen.now += 0.002;
    phase.update(i / 4, 256);
  }
  EXPECT_GE(screen.writes, 15);
  EXPECT_LE(screen.writes, 21);
}

TEST(Console, TheBarShowsRateAndTimeLeftAndGoesAwayAtTheEnd) {
  Screen screen;
  Console console({}, screen.terminal(), screen.clock());
  {
    Console::Phase phase = console.phase("generate", 200, "samples");
    screen.now += 10;
    phase.update(50, 200);
    const std::string line = last_line(screen.text);
    EXPECT_NE(line.find("50/200 samples  5/s  30 s left"), std::string::npos) << line;
    EXPECT_NE(line.find("[##"), std::string::npos) << line;
    EXPECT_LT(line.size(), 60U + 4);  // four bytes of the escape sequence
  }
  EXPECT_TRUE(screen.text.ends_with("\r\x1b[2K"));
  EXPECT_EQ(screen.text.find('\n'), std::string::npos);
}

TEST(Console, ALineStaysAboveTheBar) {
  Screen screen;
  Console console({}, screen.terminal(), screen.clock());
  const Console::Phase phase = console.phase("train", 4, "microbatches");
  console.line("hello");
  EXPECT_NE(screen.text.find("\r\x1b[2Khello\n\r\x1b[2Ktrain"), std::string::npos) << screen.text;
}

TEST(Console, WithoutATerminalThereIsALineEachHalfMinuteAndNoEscape) {
  Screen screen;
  screen.tty = false;
  Console console({}, screen.terminal(), screen.clock());
  {
    Console::Phase quick = console.phase("publish", 1, "tensors");
    quick.update(1, 1);
  }
  EXPECT_EQ(screen.text, "");
  {
    Console::Phase phase = console.phase("generate", 100, "samples");
    for (int i = 1; i <= 70; ++i) {
      screen.now += 1;
      phase.update(i, 100, "17 tokens/s");
    }
  }
  EXPECT_EQ(screen.text,
            "generate: 30/100 samples  1/s  1 min 10 s left  17 tokens/s\n"
            "generate: 60/100 samples  1/s  40 s left  17 tokens/s\n"
            "generate: 70 samples in 1 min 10 s\n");
}

TEST(Console, QuietSaysNothingAndVerboseAllFigures) {
  metrics::StepMetrics step(3);
  step.set(metrics::kRewardMean, 0.5);
  step.set("some/figure", 7);
  for (const std::string verbosity : {"quiet", "normal", "verbose"}) {
    Screen screen;
    Console console({verbosity}, screen.terminal(), screen.clock());
    Console::Phase phase = console.phase("generate", 2, "samples");
    phase.update(1, 2);
    console.step(step, 40);
    EXPECT_EQ(screen.text.empty(), verbosity == "quiet");
    EXPECT_EQ(screen.text.find("some/figure") != std::string::npos, verbosity == "verbose");
  }
}

TEST(Console, LogMessagesMakeRoomForThemselves) {
  Screen screen;
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  auto plain = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  plain->set_pattern("%l %v");
  spdlog::set_default_logger(plain);
  {
    Console console({}, screen.terminal(), screen.clock());
    const Console::Phase phase = console.phase("train", 2, "steps");
    const LogBesideConsole beside(console);
    const size_t written = screen.text.size();
    spdlog::warn("look");
    EXPECT_EQ(log.str(), "warning look\n");
    EXPECT_TRUE(screen.text.substr(written).starts_with("\r\x1b[2K\r\x1b[2Ktrain")) << "erased, then drawn again";
  }
  EXPECT_EQ(spdlog::default_logger(), plain);
  spdlog::set_default_logger(before);
}

TEST(Console, ManyThreadsMayReportProgress) {
  Screen screen;
  Console console({}, screen.terminal());
  Console::Phase phase = console.phase("score", 4000, "answers");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) phase.update(i, 4000, std::string(static_cast<size_t>(t), 'x'));
      console.line("thread " + std::to_string(t));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t)
    EXPECT_NE(screen.text.find("\r\x1b[2Kthread " + std::to_string(t) + "\n"), std::string::npos);
}

TEST(Console, TheStepLineShowsWhatWasMeasuredAndNothingElse) {
  metrics::StepMetrics step(7);
  EXPECT_EQ(step_line(step, 120), "step   7/120");
  step.set(metrics::kRewardMean, 0.53125);
  step.set(metrics::kGapMean, 0.00612);
  step.set(metrics::kResponseTruncated, 0);
  step.set(metrics::kPolicySkipped, 1);
  step.set(metrics::kTimeStep, 3.14);
  EXPECT_EQ(step_line(step, 120), "step   7/120  reward 0.531  gap 0.0061  UPDATE SKIPPED (not finite)  3.1 s");
}

TEST(Console, TheEvaluationLineShowsEveryK) {
  metrics::EvalRecord record;
  record.step = 10;
  record.set = "held_out";
  record.problems = 128;
  record.answers = 1024;
  record.pass_at = {{1, 0.595}, {8, 0.945}};
  record.greedy = 0.61;
  EXPECT_EQ(evaluation_line(record),
            "eval held_out after step 10:  pass@1 0.595  pass@8 0.945  greedy 0.610  truncated 0%  (128 problems, 1024 "
            "answers)");
}

TEST(Console, ANarrowTerminalNeverWraps) {
  for (int columns = 0; columns < 90; ++columns) {
    const std::string line = bar_line(0.5, "generate", "128/256 samples  20.8/s  6.2 s left", columns);
    EXPECT_LE(static_cast<int>(line.size()), std::max(columns - 1, 0)) << columns;
  }
  EXPECT_EQ(duration(0.44), "0.4 s");
  EXPECT_EQ(duration(59.7), "1 min 0 s");
  EXPECT_EQ(duration(7500), "2 h 5 min");
  EXPECT_EQ(duration(-1), "? s");
}

}  // namespace
}  // namespace report
