#include "controller/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/expect_error.h"
#include "controller/fakes.h"

namespace controller {
namespace {
using ::testing::ElementsAre;

RolloutSettings settings_with(int64_t max_staleness) {
  RolloutSettings settings;
  settings.prompts_per_step = 2;
  settings.samples_per_prompt = 2;
  settings.max_staleness = max_staleness;
  return settings;
}

double index_as_reward(int64_t, int64_t index) { return static_cast<double>(index); }

// Runs steps [first, last) as the controller does, and returns the versions that wrote each step's groups.
std::vector<int64_t> run(Pipeline& pipeline, FakeGenerator& generator, int64_t first, int64_t last) {
  std::vector<int64_t> oldest;
  generator.serving = first;
  pipeline.start(first, last);
  for (int64_t step = first; step < last; ++step) {
    const std::optional<Collected> collected = pipeline.next();
    if (!collected) return oldest;
    int64_t version = step;
    for (const data::Group& group : collected->groups) version = std::min(version, oldest_version(group));
    oldest.push_back(version);
    generator.serving = step + 1;
    pipeline.published(step + 1);
  }
  return oldest;
}

// Waits until the pipeline has collected `count` steps that nobody has taken.
void wait_for_ready(const Pipeline& pipeline, size_t count) {
  for (int i = 0; i < 10000 && pipeline.state()["ready"].size() < count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(pipeline.state()["ready"].size(), count);
}

TEST(Pipeline, WithoutStalenessEachStepIsSampledByItsOwnWeights) {
  FakeGenerator generator;
  Collector collector(settings_with(0), 1, fake_parts(generator, index_as_reward));
  Pipeline pipeline(collector, 0, never, no_progress);
  EXPECT_THAT(run(pipeline, generator, 0, 4), ElementsAre(0, 1, 2, 3));
}

TEST(Pipeline, CollectsAheadUpToTheLimitAndNoFurther) {
  FakeGenerator generator;
  Collector collector(settings_with(2), 1, fake_parts(generator, index_as_reward));
  Pipeline pipeline(collector, 2, never, no_progress);
  pipeline.start(0, 100);
  wait_for_ready(pipeline, 3);  // steps 0, 1, 2 may all be trained on version 0
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pipeline.state()["ready"].size(), 3u) << "step 3 needs version 1";
  pipeline.next();
  generator.serving = 1;
  pipeline.published(1);
  wait_for_ready(pipeline, 3);
}

TEST(Pipeline, NoGroupIsOlderThanTheLimit) {
  for (const int64_t limit : {1, 3}) {
    FakeGenerator generator;
    Collector collector(settings_with(limit), 1, fake_parts(generator, index_as_reward));
    Pipeline pipeline(collector, limit, never, no_progress);
    const std::vector<int64_t> oldest = run(pipeline, generator, 5, 30);
    ASSERT_EQ(oldest.size(), 25u);
    for (size_t i = 0; i < oldest.size(); ++i) EXPECT_LE(5 + static_cast<int64_t>(i) - oldest[i], limit);
  }
}

TEST(Pipeline, ResumedRunTrainsOnEveryCollectedGroupOnce) {
  FakeGenerator generator;
  base::Json state;
  std::vector<int64_t> ids;
  const auto take = [&](const Collected& collected) {
    for (const data::Group& group : collected.groups) ids.push_back(group.id);
  };
  {
    Collector collector(settings_with(2), 1, fake_parts(generator, index_as_reward));
    Pipeline pipeline(collector, 2, never, no_progress);
    pipeline.start(0, 100);
    wait_for_ready(pipeline, 3);
    take(*pipeline.next());
    state = base::parse_json(base::to_line(pipeline.state()), "test");  // step 1 is the next; 1 and 2 lie ready
  }
  Collector collector(settings_with(2), 1, fake_parts(generator, index_as_reward));
  Pipeline pipeline(collector, 2, never, no_progress);
  pipeline.restore(state, "test");
  generator.serving = 1;
  pipeline.start(1, 5);
  for (int64_t step = 1; step < 5; ++step) {
    take(*pipeline.next());
    pipeline.published(step + 1);
  }
  EXPECT_THAT(ids, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(Pipeline, StopEndsTheRunWithoutGroups) {
  for (const int64_t staleness : {0, 1}) {
    FakeGenerator generator;
    Collector collector(settings_with(staleness), 1, fake_parts(generator, index_as_reward));
    Pipeline pipeline(
        collector, staleness, [] { return true; }, no_progress);
    pipeline.start(0, 10);
    EXPECT_FALSE(pipeline.next());
  }
}

TEST(Pipeline, ErrorOfTheCollectionReachesTheTrainer) {
  for (const int64_t staleness : {0, 1}) {
    FakeGenerator generator;
    CollectorParts parts = fake_parts(generator, index_as_reward);
    parts.score = [](std::span<data::Group>, const StopAsked&) -> rewards::ScoreTotals {
      base::fail(base::Code::unavailable, "the judge is away");
    };
    Collector collector(settings_with(staleness), 1, std::move(parts));
    Pipeline pipeline(collector, staleness, never, no_progress);
    pipeline.start(0, 10);
    test::expect_error(base::Code::unavailable, {"the judge is away"}, [&] { pipeline.next(); });
  }
}

TEST(Pipeline, EndsWhileItsThreadWaitsAtTheLimit) {
  FakeGenerator generator;
  Collector collector(settings_with(1), 1, fake_parts(generator, index_as_reward));
  Pipeline pipeline(collector, 1, never, no_progress);
  pipeline.start(0, 100);
  wait_for_ready(pipeline, 2);
}  // the destructor returns

}  // namespace
}  // namespace controller
