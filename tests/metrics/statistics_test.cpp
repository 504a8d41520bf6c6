#include "metrics/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "metrics/names.h"
#include "metrics/step_metrics.h"
#include "metrics/timers.h"

namespace metrics {
namespace {

TEST(Statistics, FollowHandComputedValues) {
  const std::vector<double> values = {4, 1, 3, 2, 10};
  const Summary summary = summarize(values);
  EXPECT_EQ(summary.count, 5);
  EXPECT_EQ(summary.mean, 4);
  EXPECT_DOUBLE_EQ(summary.std, std::sqrt(50.0 / 4));
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 10);
  EXPECT_EQ(summary.p50, 3);
  EXPECT_EQ(summary.p99, 10);
}

TEST(Statistics, P99IsTheValueOfTheNearestRank) {
  for (const auto& [n, expected] : {std::pair{1, 1}, {99, 99}, {100, 99}, {101, 100}, {200, 198}, {1000, 990}}) {
    Distribution distribution;
    for (int i = n; i >= 1; --i) distribution.add(i);
    EXPECT_EQ(distribution.summary().p99, expected) << n;
  }
}

TEST(Statistics, BrokenValuesAreCountedAndDoNotHide) {
  Distribution distribution;
  const std::vector<float> values = {1.0F, std::numeric_limits<float>::quiet_NaN(), 3.0F,
                                     std::numeric_limits<float>::infinity()};
  distribution.add(values);
  const Summary summary = distribution.summary();
  EXPECT_EQ(summary.count, 2);
  EXPECT_EQ(summary.nonfinite, 2);
  EXPECT_EQ(summary.mean, 2);
  EXPECT_EQ(summary.max, 3);
}

TEST(Statistics, EmptyAndSingleSetsHaveNoDeviation) {
  EXPECT_EQ(summarize({}).count, 0);
  EXPECT_EQ(summarize({}).std, 0);
  const std::vector<double> one = {7};
  EXPECT_EQ(summarize(one).std, 0);
  EXPECT_EQ(summarize(one).p50, 7);
}

TEST(Statistics, ALargeMeanDoesNotSwallowTheDeviation) {
  const std::vector<double> values = {1e9 + 1, 1e9 + 2, 1e9 + 3};
  EXPECT_DOUBLE_EQ(summarize(values).std, 1);
}

TEST(StepMetrics, KeepsTheOrderOfFirstSetting) {
  StepMetrics metrics(12);
  metrics.set(kRewardMean, 0.5);
  metrics.set(kGapMax, 0.25);
  metrics.set(kRewardMean, 0.75);
  metrics.add(kTimeTrain, 1);
  metrics.add(kTimeTrain, 2);
  EXPECT_EQ(base::to_line(to_json(metrics)), R"({"step":12,"reward/mean":0.75,"gap/max":0.25,"time/train_s":3.0})");
  EXPECT_EQ(metrics.find("no/such"), std::nullopt);
}

TEST(StepMetrics, SurvivesJsonWithNonFiniteValues) {
  StepMetrics metrics(3);
  metrics.set("a", std::numeric_limits<double>::infinity());
  metrics.set("b", -std::numeric_limits<double>::infinity());
  metrics.set("c", 0.1);
  metrics.set("d", std::numeric_limits<double>::quiet_NaN());
  const StepMetrics back = step_metrics_from_json(base::parse_json(base::to_line(to_json(metrics)), "x"), "x");
  EXPECT_EQ(back.step(), 3);
  EXPECT_EQ(back.find("a"), metrics.find("a"));
  EXPECT_EQ(back.find("b"), metrics.find("b"));
  EXPECT_EQ(back.find("c"), 0.1);
  EXPECT_TRUE(std::isnan(*back.find("d")));
  EXPECT_THROW(step_metrics_from_json(base::Json::parse("{\"reward/mean\": 1}"), "metrics.jsonl:7"), base::Error);
}

TEST(Timers, AddUpPerPhaseAlsoThroughExceptions) {
  double now = 0;
  Timers timers(base::Clock{[&] { return now; }});
  for (int i = 0; i < 2; ++i) {
    try {
      const auto scope = timers.time(kTimeGenerate);
      now += 1.5;
      throw std::runtime_error("x");
    } catch (const std::runtime_error&) {
    }
  }
  now += 100;
  StepMetrics metrics(1);
  timers.write_to(metrics);
  EXPECT_EQ(metrics.find(kTimeGenerate), 3);
  timers.clear();
  EXPECT_EQ(timers.seconds(kTimeGenerate), 0);
}

}  // namespace
}  // namespace metrics
