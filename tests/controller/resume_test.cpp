#include "controller/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/expect_error.h"

namespace controller {
namespace {
using ::testing::ElementsAre;
using ::testing::IsEmpty;

base::Json saved_with(const std::function<void(RunSettings&)>& change) {
  RunSettings settings;
  change(settings);
  base::Fields fields = base::fields_of(settings);
  return base::parse_json(base::to_line(base::settings_to_json(fields)), "settings.json");
}

TEST(AcceptChanges, EqualSettingsAreNoChange) {
  EXPECT_THAT(accept_changes({}, saved_with([](RunSettings&) {}), false), IsEmpty());
}

TEST(AcceptChanges, PaceAndPlaceMayChange) {
  const base::Json saved = saved_with([](RunSettings& s) {
    s.run.steps = 10;
    s.checkpoint.every = 1;
  });
  EXPECT_THAT(accept_changes({}, saved, false), ElementsAre("run.steps: 10 -> 0", "checkpoint.every: 1 -> 20"));
}

TEST(AcceptChanges, WhatAltersTheResultIsRefusedWithTheWholeList) {
  const base::Json saved = saved_with([](RunSettings& s) {
    s.run.steps = 10;
    s.actor.optimizer.schedule.lr = 0.5;
  });
  test::expect_error(
      base::Code::invalid_argument,
      {"actor.optimizer.schedule.lr: 0.5 -> 1e-06 (alters the result)", "run.steps: 10 -> 0", "--allow_changed"},
      [&] { accept_changes({}, saved, false); });
}

TEST(AcceptChanges, WhatAltersTheResultIsAcceptedWhenTold) {
  const base::Json saved = saved_with([](RunSettings& s) { s.rollout.max_staleness = 3; });
  EXPECT_THAT(accept_changes({}, saved, true), ElementsAre("rollout.max_staleness: 3 -> 0 (alters the result)"));
}

TEST(AcceptChanges, SettingThatTheSavedRunDidNotHaveIsAChange) {
  base::Json saved = saved_with([](RunSettings&) {});
  saved["rollout"].erase("max_staleness");
  test::expect_error(base::Code::invalid_argument, {"rollout.max_staleness: (not there) -> 0"},
                     [&] { accept_changes({}, saved, false); });
}

}  // namespace
}  // namespace controller
