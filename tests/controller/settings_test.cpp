// Cases cli-05, cli-06, ev-04, ck-15: what cannot be right is refused before anything is read.
#include "controller/settings.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/expect_error.h"

namespace controller {
namespace {
using base::Code;
using test::expect_error;

RunSettings good() {
  RunSettings settings;
  settings.model.config = "config.json";
  EvalSetSettings& set = settings.eval.sets.emplace_back();
  set.name = "aime";
  set.data.path = "aime.jsonl";
  return settings;
}

void expect_refused(const std::vector<std::string>& parts, const std::function<void(RunSettings&)>& change) {
  RunSettings settings = good();
  settings.check();
  change(settings);
  expect_error(Code::invalid_argument, parts, [&] { settings.check(); });
}

TEST(RunSettings, ModelComesFromExactlyOnePlace) {
  expect_refused({"model.path", "model.config"}, [](RunSettings& s) { s.model.path = "folder"; });
  expect_refused({"model.path", "model.config"}, [](RunSettings& s) { s.model.config = ""; });
}

TEST(RunSettings, EveryPartThatNeedsDataNamesIt) {
  expect_refused({"run.steps is 5", "data.path"}, [](RunSettings& s) { s.run.steps = 5; });
  expect_refused({"warmup.steps is 5", "warmup.data.path"}, [](RunSettings& s) { s.warmup.steps = 5; });
  expect_refused({"aime", "data.path"}, [](RunSettings& s) { s.eval.sets[0].data.path.clear(); });
}

TEST(RunSettings, GroupOfOneHasNothingToBeComparedWith) {
  expect_refused({"samples_per_prompt is 1", "at least 2"}, [](RunSettings& s) { s.rollout.samples_per_prompt = 1; });
}

TEST(RunSettings, AnswerLimitMustFitIntoTheContext) {
  expect_refused({"rollout.sampling.max_new_tokens is 4096", "max_context is 4096"},
                 [](RunSettings& s) { s.rollout.sampling.max_new_tokens = 4096; });
  expect_refused({"eval.sets (aime).sampling.max_new_tokens", "max_context"},
                 [](RunSettings& s) { s.eval.sets[0].sampling.max_new_tokens = 5000; });
}

TEST(RunSettings, OverSamplingWithoutDynamicSamplingIsRefusedInsteadOfIgnored) {
  expect_refused({"groups_per_round is 64", "dynamic_sampling.on"},
                 [](RunSettings& s) { s.rollout.dynamic_sampling.groups_per_round = 64; });
}

TEST(RunSettings, TrainingOnGreedyAnswersIsRefused) {
  expect_refused({"temperature"}, [](RunSettings& s) { s.rollout.sampling.temperature = 0; });
}

TEST(RunSettings, EqualAnswersOfAnEvaluationAreRefused) {
  expect_refused({"aime", "num_samples is 8", "greedy = true"},
                 [](RunSettings& s) { s.eval.sets[0].sampling.temperature = 0; });
}

TEST(RunSettings, BestModelNeedsAnEvaluationThatNamesIt) {
  expect_refused({"checkpoint.best", "eval.sets is empty"}, [](RunSettings& s) {
    s.checkpoint.best = "aime/pass@1";
    s.eval.sets.clear();
  });
  expect_refused({"checkpoint.best is \"math/pass@1\"", "aime/pass@1"},
                 [](RunSettings& s) { s.checkpoint.best = "math/pass@1"; });
  RunSettings settings = good();
  settings.checkpoint.best = "aime/pass@8";
  settings.check();
}

TEST(RunSettings, MoreUpdatesThanGroupsAreRefused) {
  expect_refused({"actor.num_minibatches is 33", "prompts_per_step is 32"},
                 [](RunSettings& s) { s.actor.num_minibatches = 33; });
}

TEST(RunSettings, NumbersThatCannotBeAreRefusedWithOptionTextAndRange) {  // cli-05
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--actor.optimizer.schedule.lr", "1e-6x"}, {"--run.steps", "3.5"},
      {"--rollout.samples_per_prompt", "0"},      {"--actor.loss.clip_low", "-0.2"},
      {"--run.seed", "18446744073709551616"},     {"--checkpoint.every", "0"},
  };
  for (const auto& [option, text] : cases) {
    RunSettings settings;
    base::Fields fields = base::fields_of(settings);
    expect_error(Code::invalid_argument, {option.substr(2), text},
                 [&] { base::override_setting(fields, option + "=" + text); });
  }
}

TEST(RunSettings, MisspeltKeyOfAnEvaluationSetIsNamed) {  // ev-04
  RunSettings settings;
  base::Fields fields = base::fields_of(settings);
  const char* toml = "[[eval.sets]]\nname = \"aime\"\n[eval.sets.sampling]\ntemprature = 0.0\n";
  expect_error(Code::invalid_argument, {"recipe.toml:4", "temprature", "temperature"},
               [&] { base::parse_settings(fields, toml, "recipe.toml"); });
}

TEST(RunSettings, SetsShareNothing) {  // ev-04
  RunSettings settings;
  base::Fields fields = base::fields_of(settings);
  base::parse_settings(
      fields, "[[eval.sets]]\nname = \"a\"\n[eval.sets.sampling]\nstop = [\"END\"]\n[[eval.sets]]\nname = \"b\"\n",
      "recipe.toml");
  EXPECT_EQ(settings.eval.sets.at(0).sampling.stop, std::vector<std::string>{"END"});
  EXPECT_TRUE(settings.eval.sets.at(1).sampling.stop.empty());
}

TEST(RunSettings, EveryRecipeSettingSurvivesATripThroughToml) {
  RunSettings settings = good(), again;
  settings.rollout.max_staleness = 2;
  settings.eval.sets[0].by = {"carries"};
  base::Fields fields = base::fields_of(settings), fields_again = base::fields_of(again);
  base::parse_settings(fields_again, base::settings_to_toml(fields), "settings.toml");
  fields_again = base::fields_of(again);
  EXPECT_EQ(base::settings_to_json(fields), base::settings_to_json(fields_again));
}

}  // namespace
}  // namespace controller
