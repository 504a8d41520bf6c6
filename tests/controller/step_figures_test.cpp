#include "controller/step_figures.h"

#include <gtest/gtest.h>

#include "metrics/names.h"

namespace controller {
namespace {

data::Group group(const std::vector<double>& rewards, const std::vector<int64_t>& versions) {
  data::Group result;
  for (const double reward : rewards) {
    data::Sample& sample = result.samples.emplace_back();
    sample.reward = reward;
    sample.versions = versions;
  }
  return result;
}

TEST(StepFigures, EqualGroupsAreToldApartByTheBestRewardOfTheStep) {
  Collected collected;
  collected.groups = {group({0, 1}, {3})};
  collected.dropped = {group({1, 1}, {3}), group({0, 0}, {3}), group({0.5, 0.5}, {3})};
  const metrics::StepMetrics figures = step_figures(4, collected, 3);
  EXPECT_EQ(figures.find(metrics::kRewardSolved), 0.25);
  EXPECT_EQ(figures.find(metrics::kRewardUnsolved), 0.5);
  EXPECT_EQ(figures.find(metrics::kGroupsCollected), 4);
  EXPECT_EQ(figures.find(metrics::kGroupsDropped), 3);
}

TEST(StepFigures, StalenessIsMeasuredFromTheVersionsInTheSamples) {
  Collected collected;
  collected.groups = {group({0, 1}, {5, 5, 6}), group({0, 1}, {7})};
  const metrics::StepMetrics figures = step_figures(8, collected, 7);
  EXPECT_EQ(figures.find(metrics::kStalenessMax), 2);
  EXPECT_EQ(figures.find(metrics::kStalenessMean), (2 * (2 + 2 + 1) + 0) / 8.0);
}

TEST(StepFigures, WhatWasNotMeasuredIsAbsent) {
  const metrics::StepMetrics figures = step_figures(1, {}, 0);
  EXPECT_FALSE(figures.find(metrics::kStalenessMean));
  EXPECT_FALSE(figures.find(metrics::kRewardSolved));
  EXPECT_EQ(figures.find(metrics::kGroupsCollected), 0);
}

}  // namespace
}  // namespace controller
