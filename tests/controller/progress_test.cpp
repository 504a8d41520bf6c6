#include "controller/progress.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"

namespace controller {
namespace {

TEST(RunProgress, SurvivesATripThroughText) {
  const RunProgress progress{Phase::learning, 12, 10, 0.1 + 0.2, {{"collector", {{"next_id", 5}}}}};
  EXPECT_EQ(progress_from_json(base::parse_json(base::to_line(to_json(progress)), "test"), "test"), progress);
  const RunProgress start;
  EXPECT_EQ(progress_from_json(base::parse_json(base::to_line(to_json(start)), "test"), "test"), start);
}

TEST(RunProgress, DamageIsNamedWithItsPlace) {
  for (const char* text : {R"({})", R"({"phase": "sleep", "step": 1, "evaluated_step": 0, "pipeline": null})",
                           R"({"phase": "learning", "step": -1, "evaluated_step": 0, "pipeline": null})",
                           R"({"phase": "learning", "step": "1", "evaluated_step": 0, "pipeline": null})"}) {
    test::expect_error(base::Code::corruption, {"step_000003"},
                       [&] { progress_from_json(base::parse_json(text, "test"), "step_000003"); });
  }
}

TEST(RunProgress, LoggedStepsRiseThroughWarmUpAndLearning) {
  EXPECT_EQ(log_step({.phase = Phase::warmup, .step = 1}, 400), -399);
  EXPECT_EQ(log_step({.phase = Phase::warmup, .step = 400}, 400), 0);
  EXPECT_EQ(log_step({.phase = Phase::learning, .step = 0}, 400), 0);
  EXPECT_EQ(log_step({.phase = Phase::learning, .step = 7}, 400), 7);
}

}  // namespace
}  // namespace controller
