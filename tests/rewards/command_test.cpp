#include "rewards/command.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "rewards/golden.h"

namespace rewards {
namespace {
const StopAsked kNever = [] { return false; };

// A worker in Python that does as the response says.
constexpr const char* kWorker = R"(
import json, os, sys, time
print("ready", file=sys.stderr, flush=True)
for line in sys.stdin:
    r = json.loads(line)
    say = lambda x: print(json.dumps(dict(id=r["id"], **x)), flush=True)
    what = r["response"]
    if what == "hang": time.sleep(60)
    elif what == "crash": sys.stderr.write("Traceback\nValueError: no\n"); sys.exit(3)
    elif what == "garbage": print("score is 1", flush=True)
    elif what == "huge": print("1" * 3000000, flush=True)
    elif what == "endless":
        while True: sys.stdout.write("1" * 65536)
    elif what == "wrong id": print(json.dumps(dict(id=r["id"] + 1, score=1)), flush=True)
    elif what == "twice": sys.stdout.write((json.dumps(dict(id=r["id"], score=1)) + "\n") * 2); sys.stdout.flush()
    elif what == "nan": print('{"id": %d, "score": NaN}' % r["id"], flush=True)
    elif what == "chatty": sys.stderr.write("x" * 1000000); say(dict(score=1))
    elif what == "pid": say(dict(score=os.getpid()))
    elif what == "once":
        flag = r["metadata"]["flag"]
        if not os.path.exists(flag): open(flag, "w").close(); sys.exit(1)
        say(dict(score=1, note="second try"))
    else: say(dict(score=1.0 if what == r["label"] else 0.0, note="compared " + what[:20]))
)";

RewardSettings worker_settings() {
  RewardSettings settings;
  settings.kind = "command";
  settings.command = {"python3", "-c", kWorker};
  settings.try_timeout_s = 20;  // a busy machine takes seconds to start Python
  settings.deadline_s = 40;
  settings.retries = 0;
  settings.backoff_s = 0.01;
  settings.failure_value = -2;
  return settings;
}

// A zombie that nobody has reaped yet still has a number, but does no work.
bool is_alive(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

bool dies(pid_t pid) {
  for (int i = 0; i < 500 && is_alive(pid); ++i) ::usleep(10'000);
  return !is_alive(pid);
}

TEST(Command, OneProcessScoresManyAnswers) {
  CommandScorer scorer(worker_settings());
  const double pid = scorer.score(problem_with("34"), answer("pid"), kNever).value;
  EXPECT_EQ(scorer.score(problem_with("34"), answer("34"), kNever).value, 1);
  const Score wrong = scorer.score(problem_with("34"), answer("3\n4"), kNever);
  EXPECT_EQ(wrong.value, 0);
  EXPECT_EQ(wrong.note, "compared 3\n4");
  EXPECT_EQ(scorer.score(problem_with("x"), answer(std::string(3'000'000, 'y')), kNever).outcome, Outcome::graded);
  EXPECT_EQ(scorer.score(problem_with("34"), answer("chatty"), kNever).value, 1);
  EXPECT_EQ(scorer.score(problem_with("34"), answer("pid"), kNever).value, pid);
}

TEST(Command, EveryWayToMisbehaveCostsOneAnswerAndTheNextIsScored) {
  RewardSettings settings = worker_settings();
  CommandScorer scorer(settings);
  for (const std::string what : {"crash", "garbage", "huge", "endless", "wrong id", "twice", "nan"}) {
    const auto pid = static_cast<pid_t>(scorer.score(problem_with("34"), answer("pid"), kNever).value);
    const Score bad = scorer.score(problem_with("34"), answer(what), kNever);
    EXPECT_EQ(bad.value, -2) << what;
    EXPECT_EQ(bad.outcome, Outcome::failed) << what;
    EXPECT_NE(bad.note.find("counted as -2 (failure_value)"), std::string::npos) << bad.note;
    EXPECT_TRUE(dies(pid)) << what;
    EXPECT_EQ(scorer.score(problem_with("34"), answer("34"), kNever).value, 1) << what;
  }
  const Score crash = scorer.score(problem_with("34"), answer("crash"), kNever);
  EXPECT_NE(crash.note.find("ValueError: no"), std::string::npos) << crash.note;
}

TEST(Command, AWorkerThatHangsIsKilledAtItsDeadlineWithAllThatItStarted) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "command_hang";
  std::filesystem::create_directories(folder);
  const std::string pid_file = folder / "pid";
  RewardSettings settings = worker_settings();
  settings.command = {"sh", "-c", "sleep 600 & echo $! > " + pid_file + "; read line; wait"};
  settings.try_timeout_s = settings.deadline_s = 0.5;
  CommandScorer scorer(settings);
  const base::Clock clock;
  const double start = clock.now_s();
  const Score score = scorer.score(problem_with("34"), answer("34"), kNever);
  EXPECT_EQ(score.outcome, Outcome::failed);
  EXPECT_NE(score.note.find("no reply within 0.5 s"), std::string::npos) << score.note;
  EXPECT_LT(clock.now_s() - start, 4) << "0.5 s of deadline, and slack for a busy machine";
  pid_t grandchild = 0;
  std::ifstream(pid_file) >> grandchild;
  ASSERT_GT(grandchild, 0);
  EXPECT_TRUE(dies(grandchild));
}

TEST(Command, ARetryGetsAFreshProcess) {
  const std::filesystem::path flag = std::filesystem::path(testing::TempDir()) / "command_once";
  std::filesystem::remove(flag);
  RewardSettings settings = worker_settings();
  settings.retries = 1;
  CommandScorer scorer(settings);
  data::Problem problem = problem_with("34");
  problem.metadata["flag"] = flag.string();
  const Score score = scorer.score(problem, answer("once"), kNever);
  EXPECT_EQ(score.value, 1);
  EXPECT_EQ(score.note, "second try");
}

TEST(Command, AProgramThatDoesNotExistIsAFailureThatNamesIt) {
  RewardSettings settings = worker_settings();
  settings.command = {"/no/such/program"};
  CommandScorer scorer(settings);
  const Score score = scorer.score(problem_with("34"), answer("34"), kNever);
  EXPECT_EQ(score.outcome, Outcome::failed);
  EXPECT_NE(score.note.find("/no/such/program"), std::string::npos) << score.note;
}

TEST(Command, AProgramThatReadsNothingDoesNotKillUsBySigpipe) {
  RewardSettings settings = worker_settings();
  settings.command = {"true"};
  settings.retries = 3;
  CommandScorer scorer(settings);
  const Score score = scorer.score(problem_with("34"), answer(std::string(1'000'000, 'x')), kNever);
  EXPECT_NE(score.note.find("after 4 tries: it ended without a reply"), std::string::npos) << score.note;
}

TEST(Command, TheProcessDiesWithTheThreadThatOwnsIt) {
  auto scorer = std::make_unique<CommandScorer>(worker_settings());
  pid_t pid = 0;
  // The thread ends without ending the scorer, as when a process is killed.
  std::thread owner([&] { pid = static_cast<pid_t>(scorer->score(problem_with("34"), answer("pid"), kNever).value); });
  owner.join();
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(dies(pid));
  EXPECT_EQ(scorer->score(problem_with("34"), answer("34"), kNever).outcome, Outcome::failed)
      << "it is not there to answer";
}

TEST(Command, StopEndsTheWaitAtOnce) {
  CommandScorer scorer(worker_settings());
  const base::Clock clock;
  const double start = clock.now_s();
  const Score score = scorer.score(problem_with("34"), answer("hang"), [&] { return clock.now_s() > start + 0.3; });
  EXPECT_EQ(score.outcome, Outcome::failed);
  EXPECT_LT(clock.now_s() - start, 5);
}

}  // namespace
}  // namespace rewards
