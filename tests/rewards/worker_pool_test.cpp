#include "rewards/worker_pool.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>

#include "base/clock.h"
#include "rewards/golden.h"
#include "rewards/loopback_server.h"

namespace rewards {
namespace {

std::vector<data::Group> groups_of(int num_groups, int num_samples) {
  std::vector<data::Group> groups;
  for (int g = 0; g < num_groups; ++g) {
    data::Group group;
    group.id = g;
    group.problem = problem_with(std::to_string(g));
    for (int s = 0; s < num_samples; ++s) group.samples.push_back(answer(std::to_string(s)));
    groups.push_back(group);
  }
  return groups;
}

TEST(WorkerPool, FillsEveryRewardInOrderWhateverTheNumberOfThreads) {
  for (const int64_t workers : {1, 7}) {
    RewardSettings settings;
    settings.workers = workers;
    WorkerPool pool(settings);
    std::vector<data::Group> groups = groups_of(20, 8);
    const ScoreTotals totals = pool.score(groups);
    EXPECT_TRUE(totals.complete);
    EXPECT_EQ(totals.graded, 160);
    for (int g = 0; g < 20; ++g) {
      for (int s = 0; s < 8; ++s) {
        EXPECT_EQ(groups[g].samples[s].reward, g == s ? 1 : 0);
        EXPECT_FALSE(groups[g].samples[s].reward_note.empty());
      }
    }
  }
}

TEST(WorkerPool, AnEmptyBatchIsComplete) {
  WorkerPool pool{RewardSettings{}};
  EXPECT_TRUE(pool.score({}).complete);
  EXPECT_EQ(pool.score({}).all(), 0);
}

// Replies with the response as the score after a short time; counts how many answers it has in hand at once.
struct CountingServer {
  std::atomic<int> now = 0, most = 0;
  LoopbackServer server{[this](const std::string& body) {
    const int in_hand = ++now;
    for (int seen = most; seen < in_hand && !most.compare_exchange_weak(seen, in_hand);) {
    }
    ::usleep(20'000);
    --now;
    return HttpReply{200, base::parse_json(body, "request")["response"].get<std::string>()};
  }};
  RewardSettings settings(int64_t workers) const {
    RewardSettings result;
    result.kind = "url";
    result.url = server.url();
    result.workers = workers;
    result.retries = 0;
    return result;
  }
};

TEST(WorkerPool, KeepsAtMostWorkersCallsInFlightAndUsesThemAll) {
  CountingServer counting;
  WorkerPool pool(counting.settings(4));
  std::vector<data::Group> groups = groups_of(6, 8);
  EXPECT_EQ(pool.score(groups).graded, 48);
  EXPECT_EQ(counting.most, 4);
  for (const data::Group& group : groups) {
    for (int s = 0; s < 8; ++s) EXPECT_EQ(group.samples[s].reward, s);
  }
}

TEST(WorkerPool, SeveralBatchesMayBeScoredAtTheSameTime) {
  CountingServer counting;
  WorkerPool pool(counting.settings(3));
  std::vector<std::vector<data::Group>> batches(4, groups_of(2, 4));
  std::vector<std::thread> threads;
  for (auto& batch : batches) threads.emplace_back([&] { EXPECT_EQ(pool.score(batch).graded, 8); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& batch : batches) EXPECT_EQ(batch[1].samples[3].reward, 3);
}

TEST(WorkerPool, StopDropsTheBatchAndLeavesTheGroupsAsTheyWere) {
  LoopbackServer server([](const std::string&) { return HttpReply{200, "1", 30}; });
  RewardSettings settings;
  settings.kind = "url";
  settings.url = server.url();
  settings.workers = 2;
  settings.try_timeout_s = settings.deadline_s = 60;
  WorkerPool pool(settings);
  std::vector<data::Group> groups = groups_of(4, 8);
  const base::Clock clock;
  const double start = clock.now_s();
  const ScoreTotals totals = pool.score(groups, [&] { return clock.now_s() > start + 0.2; });
  EXPECT_FALSE(totals.complete);
  EXPECT_LT(clock.now_s() - start, 5);
  EXPECT_EQ(groups[0].samples[0].reward_note, "");
}

TEST(WorkerPool, FailuresAreCountedAndTooManyEndTheRun) {
  std::atomic<int> calls = 0;
  LoopbackServer server([&](const std::string&) {
    return ++calls % 4 == 0 ? HttpReply{400, "no"} : HttpReply{200, "1"};
  });
  RewardSettings settings;
  settings.kind = "url";
  settings.url = server.url();
  settings.failure_value = -3;
  settings.workers = 2;
  settings.max_failed = 0.25;
  {
    WorkerPool pool(settings);
    std::vector<data::Group> groups = groups_of(2, 4);
    const ScoreTotals totals = pool.score(groups);
    EXPECT_EQ(totals.failed, 2);
    EXPECT_EQ(totals.graded, 6);
    double sum = 0;
    for (const data::Group& group : groups) {
      for (const data::Sample& sample : group.samples) sum += sample.reward;
    }
    EXPECT_EQ(sum, 6 * 1 + 2 * -3);
  }
  settings.max_failed = 0.2;
  WorkerPool strict(settings);
  std::vector<data::Group> groups = groups_of(2, 4);
  try {
    strict.score(groups);
    FAIL() << "no error";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::Code::unavailable);
    EXPECT_NE(std::string(error.what()).find("2 of 8"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("HTTP status 400"), std::string::npos) << error.what();
  }
}

TEST(WorkerPool, CommandWorkersAreSharedOutAndEndWithThePool) {
  RewardSettings settings;
  settings.kind = "command";
  settings.command = {"python3", "-c",
                      "import sys, json, os\n"
                      "for line in sys.stdin:\n"
                      "    print(json.dumps({'id': json.loads(line)['id'], 'score': os.getpid()}), flush=True)\n"};
  settings.workers = 2;
  std::vector<data::Group> groups = groups_of(8, 8);
  {
    WorkerPool pool(settings);
    EXPECT_EQ(pool.score(groups).graded, 64);
  }
  std::vector<double> pids;
  for (const data::Group& group : groups) {
    for (const data::Sample& sample : group.samples) pids.push_back(sample.reward);
  }
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  EXPECT_LE(pids.size(), 2U);
  for (const double pid : pids) EXPECT_NE(::kill(static_cast<pid_t>(pid), 0), 0);
}

}  // namespace
}  // namespace rewards
