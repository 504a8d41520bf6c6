// Generation that overlaps training: the same loop with rollout.max_staleness above 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "e2e/tiny_run.h"
#include "report/jsonl.h"
#include "report/rollouts.h"

namespace e2e {
namespace {

// The steps' samples must say themselves how stale they were: versions from step - 1 - limit to step - 1, where step -
// 1 is the version that the step trained.
void check_versions(const fs::path& run, int64_t limit, size_t num_steps) {
  size_t steps = 0;
  bool overlapped = false;
  for (const report::RolloutFile& file : report::list_rollouts(run / "rollouts")) {
    if (!file.set.empty()) continue;
    ++steps;
    for (const data::Group& group : report::read_rollouts(file.path)) {
      for (const data::Sample& sample : group.samples) {
        ASSERT_EQ(sample.versions.size(), sample.response_ids.size());
        for (const int64_t version : sample.versions) {
          EXPECT_GE(version, file.step - 1 - limit);
          EXPECT_LE(version, file.step - 1);
          overlapped = overlapped || version < file.step - 1;
        }
      }
    }
  }
  EXPECT_EQ(steps, num_steps);
  EXPECT_EQ(overlapped, limit > 0);
}

TEST(Staleness, OneVersionBehindRunsToItsEndAndRecordsTheVersions) {
  const TinyRun tiny;
  const Finished run = tiny.finish("run", {"--rollout.max_staleness=1", "--run.steps=8"});
  ASSERT_EQ(run.code, 0) << run.output;
  check_versions(tiny.run("run"), 1, 8);
  double most = 0;
  for (const Json& line : report::read_lines(tiny.run("run") / "metrics.jsonl")) {
    if (line.contains("staleness/max")) most = std::max(most, line["staleness/max"].get<double>());
  }
  EXPECT_EQ(most, 1);
}

TEST(Staleness, NoneMeansThatEachStepIsSampledByItsOwnWeights) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.finish("run").code, 0);
  check_versions(tiny.run("run"), 0, 6);
}

TEST(Staleness, KilledRunGoesOnAndTrainsOnEveryGroupOnce) {
  const TinyRun tiny;
  const std::vector<std::string> settings = {"--rollout.max_staleness=2", "--run.steps=60",
                                             "--rollout.dynamic_sampling.on=false",
                                             "--rollout.dynamic_sampling.groups_per_round=0", "--checkpoint.every=1"};
  std::vector<std::string> resume = settings;
  resume.push_back("--resume");
  // Killed when a few more steps have been logged: 3, 6, 9.
  size_t killed_at = 0;
  for (int kill = 1; kill <= 3; ++kill) {
    Program program(tiny.train("run", kill == 1 ? settings : resume), tiny.folder() / "killed.out");
    const auto learned = [&] {
      size_t count = 0;
      for (const Json& line : report::read_lines(tiny.run("run") / "metrics.jsonl")) count += line["step"] > 0;
      return count;
    };
    for (int i = 0; i < 30000 && learned() < 3u * kill && program.runs_longer_than(0.002); ++i) continue;
    ASSERT_TRUE(program.runs_longer_than(0)) << program.output();
    program.kill_hard();
    ASSERT_LT(learned(), 60u);
    EXPECT_GT(learned(), killed_at) << "the run got further than the last time";
    killed_at = learned();
  }
  const Finished run = tiny.finish("run", resume);
  ASSERT_EQ(run.code, 0) << run.output;
  check_versions(tiny.run("run"), 2, 60);
  std::vector<int64_t> ids;
  for (const report::RolloutFile& file : report::list_rollouts(tiny.run("run") / "rollouts")) {
    if (!file.set.empty()) continue;
    for (const data::Group& group : report::read_rollouts(file.path)) ids.push_back(group.id);
  }
  std::sort(ids.begin(), ids.end());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<int64_t>(i));
  EXPECT_EQ(ids.size(), 60u * 4u);
}

}  // namespace
}  // namespace e2e
