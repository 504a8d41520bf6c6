// `furlong eval` as a user runs it. Case ev-02 of area eval.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "e2e/tiny_run.h"
#include "report/jsonl.h"

namespace e2e {
namespace {
using ::testing::HasSubstr;

TEST(Evaluate, EveryRowCountsAndTheResultDoesNotDependOnHowManyRunAtOnce) {  // ev-02
  const TinyRun tiny;
  std::vector<Json> results;
  for (const std::string num_slots : {"1", "5", "64"}) {
    const fs::path run = tiny.run("slots_" + num_slots);
    const Finished eval = run_program({"eval", tiny.recipe().string(), "--run.dir=" + run.string(),
                                       "--rollout.engine.profile=f32", "--rollout.engine.num_slots=" + num_slots},
                                      tiny.folder() / "eval.out");
    ASSERT_EQ(eval.code, 0) << eval.output;
    EXPECT_THAT(eval.output, HasSubstr("letters (6 problems, 12 answers)"));
    results.push_back(report::read_lines(run / "eval.jsonl").at(0));
  }
  EXPECT_EQ(results[0]["problems"], 6);
  EXPECT_EQ(results[0]["answers"], 12);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(Evaluate, WithoutSetsItSaysWhatIsMissing) {
  const TinyRun tiny;
  base::write_file_atomic(tiny.folder() / "bare.toml", "[model]\nconfig = \"config.json\"\n");
  const Finished eval = run_program({"eval", (tiny.folder() / "bare.toml").string()}, tiny.folder() / "eval.out");
  EXPECT_EQ(eval.code, 1);
  EXPECT_THAT(eval.output, HasSubstr("eval.sets is empty"));
}

}  // namespace
}  // namespace e2e
