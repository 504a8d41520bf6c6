#include "rewards/text_match.h"

#include <gtest/gtest.h>

#include "base/settings.h"
#include "rewards/golden.h"

namespace rewards {
namespace {

TEST(TextMatch, ExactIgnoresOnlyWhiteSpaceAtTheEnds) {
  EXPECT_EQ(value_of("exact", " four two\n", "four two"), 1);
  EXPECT_EQ(value_of("exact", "four  two", "four two"), 0);
  EXPECT_EQ(value_of("exact", "", ""), 0) << "an empty label is never right";
}

TEST(TextMatch, AfterLastComparesTheTextAfterTheLastSeparator) {
  const std::string chain = "7+5+0=12,3+8+1=12,4+2+1=07;0722";
  EXPECT_EQ(value_of("after_last", chain, "0722"), 1);
  EXPECT_EQ(value_of("after_last", chain, "722"), 0);
  EXPECT_EQ(value_of("after_last", "1;0722;0723", "0722"), 0);
  EXPECT_EQ(value_of("after_last", "0722", "0722"), 0) << "no separator, no answer";
  EXPECT_EQ(value_of("after_last", "0722;", "0722"), 0);
}

TEST(TextMatch, RequireStopRefusesAnAnswerThatWasCutOff) {
  RewardSettings settings;
  settings.kind = "after_last";
  const data::Problem problem = problem_with("0722");
  const data::Sample cut = answer("1;0722", data::FinishReason::length);
  EXPECT_EQ(score_of(settings, problem, cut).value, 1);
  settings.require_stop = true;
  EXPECT_EQ(score_of(settings, problem, answer("1;0722")).value, 1);
  for (const std::string kind : {"after_last", "exact", "math_deepscaler", "math_dapo"}) {
    settings.kind = kind;
    const Score score = score_of(settings, problem, cut);
    EXPECT_EQ(score.value, kind == "math_dapo" ? -1 : 0);
    EXPECT_EQ(score.outcome, Outcome::no_answer);
    EXPECT_NE(score.note.find("cut off"), std::string::npos);
  }
}

TEST(RewardSettings, EveryKindOfTheSettingIsARewardAndTheOtherWayRound) {
  RewardSettings settings;
  base::Fields fields = base::fields_of(settings);
  ASSERT_EQ(fields[0].name, "kind");
  std::vector<std::string> kinds = fields[0].allowed;
  std::vector<std::string> expected;
  for (const NamedReward& reward : all_rewards()) expected.emplace_back(reward.name);
  expected.insert(expected.end(), {"command", "url"});
  EXPECT_EQ(kinds, expected);
}

TEST(RewardSettings, ContradictionsAreNamed) {
  const auto message = [](const RewardSettings& settings) -> std::string {
    try {
      check_settings(settings);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  };
  RewardSettings settings;
  EXPECT_EQ(message(settings), "");
  settings.kind = "command";
  EXPECT_NE(message(settings).find("reward.command"), std::string::npos);
  settings.kind = "url";
  settings.url = "ftp://x";
  EXPECT_NE(message(settings).find("http://"), std::string::npos);
  settings.kind = "no_such";
  EXPECT_NE(message(settings).find("math_dapo"), std::string::npos);
  settings.kind = "after_last";
  settings.separator = "";
  EXPECT_NE(message(settings).find("separator"), std::string::npos);
  settings.kind = "exact";
  settings.deadline_s = 1;
  EXPECT_NE(message(settings).find("deadline_s"), std::string::npos);
}

}  // namespace
}  // namespace rewards
