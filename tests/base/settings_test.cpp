// Settings: each way in and out, the checks, and the messages.
#include "base/settings.h"

#include "base/expect_error.h"
#include "base/files.h"

namespace {

using base::Code;
using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;

struct SamplingSettings {
  double temperature = 1;
  int64_t top_k = 0;
  template <class V>
  void visit(V&& v) {
    v("temperature", temperature, "softmax temperature", base::Range{0, 10});
    v("top_k", top_k, "tokens kept; 0 keeps all", base::Range{0, 1 << 20});
  }
};

struct SetSettings {
  std::string path;
  int64_t num_samples = 8;
  SamplingSettings sampling;
  template <class V>
  void visit(V&& v) {
    v("path", path, "JSONL file");
    v("num_samples", num_samples, "answers per problem", base::Range{1, 1024});
    v("sampling", sampling, "how this set is answered");
  }
};

struct RolloutSettings {
  std::string profile = "fp8";
  SamplingSettings sampling;
  std::vector<std::string> stop = {"</s>"};
  template <class V>
  void visit(V&& v) {
    v("profile", profile, "precision", base::OneOf{"f32", "bf16", "fp8"});
    v("sampling", sampling, "how tokens are drawn");
    v("stop", stop, "texts that end an answer");
  }
};

struct OutputSettings {
  bool color = true;
  double every_s = 1.5;
  template <class V>
  void visit(V&& v) {
    v("color", color, "colours on the console");
    v("every_s", every_s, "seconds between two lines", base::Range{0.1});
  }
};

struct RunSettings {
  int64_t seed = 17;
  RolloutSettings rollout;
  std::vector<SetSettings> sets;
  std::vector<int64_t> pass_at = {1, 8};
  OutputSettings output;
  template <class V>
  void visit(V&& v) {
    v("seed", seed, "of everything random");
    v("rollout", rollout, "the engine");
    v("sets", sets, "evaluation sets");
    v("pass_at", pass_at, "k of pass@k", base::Range{1, 64});
    v("output", output, "console", base::Resume::harmless);
  }
};

RunSettings parsed(const std::string& toml) {
  RunSettings run;
  base::Fields fields = base::fields_of(run);
  base::parse_settings(fields, toml, "run.toml");
  return run;
}

RunSettings overridden(const std::vector<std::string>& arguments) {
  RunSettings run;
  base::Fields fields = base::fields_of(run);
  for (const std::string& argument : arguments) base::override_setting(fields, argument);
  return run;
}

base::Json json_of(RunSettings run) {
  base::Fields fields = base::fields_of(run);
  return base::settings_to_json(fields);
}

TEST(Settings, TomlSetsWhatItNamesAndLeavesTheRest) {
  const RunSettings run = parsed(R"(
seed = 3
pass_at = [1, 2, 4]
[rollout]
profile = "bf16"
stop = []
sampling.temperature = 2   # a whole number is a number
[[sets]]
path = "a.jsonl"
[[sets]]
path = "b.jsonl"
num_samples = 2
[sets.sampling]
top_k = 5
)");
  EXPECT_EQ(run.seed, 3);
  EXPECT_EQ(run.rollout.profile, "bf16");
  EXPECT_TRUE(run.rollout.stop.empty());
  EXPECT_EQ(run.rollout.sampling.temperature, 2);
  EXPECT_EQ(run.rollout.sampling.top_k, 0);
  EXPECT_THAT(run.pass_at, ElementsAre(1, 2, 4));
  ASSERT_EQ(run.sets.size(), 2u);
  EXPECT_EQ(run.sets[0].path, "a.jsonl");
  EXPECT_EQ(run.sets[0].num_samples, 8);
  EXPECT_EQ(run.sets[0].sampling.top_k, 0);
  EXPECT_EQ(run.sets[1].num_samples, 2);
  EXPECT_EQ(run.sets[1].sampling.top_k, 5);
  EXPECT_TRUE(run.output.color);
}

TEST(Settings, AnUnknownKeyNamesFileLineAndTheNearestKnownKey) {
  expect_error(Code::invalid_argument, {"run.toml:3:", "\"rollout.profil\"", "did you mean \"rollout.profile\""},
               [] { parsed("seed = 1\n[rollout]\nprofil = \"f32\"\n"); });
  expect_error(Code::invalid_argument, {"run.toml:1:", "\"temperature\"", "\"rollout.sampling.temperature\""},
               [] { parsed("temperature = 1\n"); });
  expect_error(Code::invalid_argument, {"run.toml:2:", "\"sets.0.paht\"", "\"sets.0.path\""},
               [] { parsed("[[sets]]\npaht = 'x'"); });
  expect_error(Code::invalid_argument, {"run.toml:1:", "\"wholly_other\"", "--help"},
               [] { parsed("wholly_other = 1"); });
  expect_error(Code::invalid_argument, {"run.toml:2:", "\"optimizer\""}, [] { parsed("\n[optimizer]\nlr = 1"); });
}

TEST(Settings, AValueOfTheWrongKindIsRefusedWithItsPlace) {
  expect_error(Code::invalid_argument, {"run.toml:1: seed = \"3\": should be a whole number"},
               [] { parsed("seed = \"3\""); });
  expect_error(Code::invalid_argument, {"run.toml:1: seed = 1.5: should be a whole number"},
               [] { parsed("seed = 1.5"); });
  expect_error(Code::invalid_argument, {"output.color = 1: should be true or false"},
               [] { parsed("output.color = 1"); });
  expect_error(Code::invalid_argument, {"rollout.stop = \"x\": should be a list of texts"},
               [] { parsed("rollout.stop = 'x'"); });
  expect_error(Code::invalid_argument, {"rollout.stop = 1: should be a text"}, [] { parsed("rollout.stop = [1]"); });
  expect_error(Code::invalid_argument, {"rollout = 1: should be a section"}, [] { parsed("rollout = 1"); });
  expect_error(Code::invalid_argument, {"seed: should be a value, not a table"}, [] { parsed("[seed]\nx = 1"); });
  expect_error(Code::invalid_argument, {"sets: should be a list of tables", "[[sets]]"},
               [] { parsed("[sets]\npath = 'x'"); });
  expect_error(Code::invalid_argument, {"run.toml:1", "should be a number, true or false, or a text"},
               [] { parsed("seed = 2026-01-01"); });
}

TEST(Settings, AValueOutOfRangeIsRefusedWithTheRange) {
  expect_error(Code::invalid_argument,
               {"run.toml:1: rollout.sampling.temperature = 11: should be from 0 to 10 (softmax temperature)"},
               [] { parsed("rollout.sampling.temperature = 11"); });
  expect_error(Code::invalid_argument, {"output.every_s = 0: should be 0.1 or more"},
               [] { parsed("output.every_s = 0"); });
  expect_error(Code::invalid_argument, {"pass_at = 65"}, [] { parsed("pass_at = [1, 65]"); });
  expect_error(Code::invalid_argument, {"rollout.profile = \"fp16\": should be one of \"f32\", \"bf16\", \"fp8\""},
               [] { parsed("rollout.profile = 'fp16'"); });
  expect_error(Code::invalid_argument, {"output.every_s = inf: should be a finite number"},
               [] { parsed("output.every_s = inf"); });
  expect_error(Code::invalid_argument, {"output.every_s = nan"}, [] { parsed("output.every_s = nan"); });
}

TEST(Settings, BrokenTomlIsRefusedWithLineAndColumn) {
  expect_error(Code::invalid_argument, {"run.toml:2:", "not valid TOML"}, [] { parsed("seed = 1\nseed = = 2\n"); });
  expect_error(Code::invalid_argument, {"run.toml:2:", "not valid TOML"}, [] { parsed("seed = 1\nseed = 2\n"); });
}

TEST(Settings, TheCommandLineSetsEveryKindOfField) {
  const RunSettings run =
      overridden({"--seed=-5", "--rollout.sampling.temperature=0.7", "--rollout.profile=f32", "--rollout.stop=a,b c",
                  "--pass_at=1,4", "--output.color=false", "--sets.0.path=x=y.jsonl", "--sets.1.num_samples=4",
                  "--sets.1.sampling.top_k=9"});
  EXPECT_EQ(run.seed, -5);
  EXPECT_EQ(run.rollout.sampling.temperature, 0.7);
  EXPECT_EQ(run.rollout.profile, "f32");
  EXPECT_THAT(run.rollout.stop, ElementsAre("a", "b c"));
  EXPECT_THAT(run.pass_at, ElementsAre(1, 4));
  EXPECT_FALSE(run.output.color);
  ASSERT_EQ(run.sets.size(), 2u);
  EXPECT_EQ(run.sets[0].path, "x=y.jsonl");
  EXPECT_EQ(run.sets[1].num_samples, 4);
  EXPECT_EQ(run.sets[1].sampling.top_k, 9);
  EXPECT_TRUE(overridden({"--output.color=false", "--output.color"}).output.color);
  EXPECT_THAT(overridden({R"(--rollout.stop=["a,b", "\n"])"}).rollout.stop, ElementsAre("a,b", "\n"));
  EXPECT_TRUE(overridden({"--rollout.stop="}).rollout.stop.empty());
}

TEST(Settings, AWrongArgumentIsRefusedAndQuoted) {
  expect_error(Code::invalid_argument, {"--seed=1x", "should be a whole number"}, [] { overridden({"--seed=1x"}); });
  expect_error(Code::invalid_argument, {"--seed", "needs a value"}, [] { overridden({"--seed"}); });
  expect_error(Code::invalid_argument, {"seed=1", "--section.key=value"}, [] { overridden({"seed=1"}); });
  expect_error(Code::invalid_argument, {"--sede=1", "did you mean \"seed\""}, [] { overridden({"--sede=1"}); });
  expect_error(Code::invalid_argument, {"the next index is 0"}, [] { overridden({"--sets.3.path=x"}); });
  expect_error(Code::invalid_argument, {"unknown setting \"sets.x.path\""}, [] { overridden({"--sets.x.path=1"}); });
  expect_error(Code::invalid_argument, {"valid UTF-8"}, [] { overridden({"--rollout.stop=\xff"}); });
  expect_error(Code::invalid_argument, {"--output.every_s=inf", "finite"},
               [] { overridden({"--output.every_s=inf"}); });
}

RunSettings unusual_run() {
  RunSettings run;
  run.seed = INT64_MIN;
  run.rollout.sampling.temperature = 0.1 + 0.2;
  run.rollout.stop = {"\"\\\n\t\x7f", "\xe2\x82\xac", ""};
  run.pass_at = {};
  run.output.every_s = 3;
  run.sets.resize(2);
  run.sets[1].sampling.top_k = 7;
  return run;
}

TEST(Settings, WhatIsWrittenAsTomlReadsBackTheSame) {
  RunSettings run = unusual_run();
  base::Fields fields = base::fields_of(run);
  EXPECT_EQ(json_of(parsed(base::settings_to_toml(fields))), json_of(run));
  run.sets.clear();
  EXPECT_EQ(json_of(parsed("[[sets]]\n")).at("sets").size(), 1u);
  EXPECT_EQ(json_of(parsed(base::settings_to_toml(fields))), json_of(run)) << base::settings_to_toml(fields);
}

TEST(Settings, WhatIsWrittenAsJsonReadsBackTheSame) {
  const base::Json json = json_of(unusual_run());
  EXPECT_EQ(json.at("rollout").at("sampling").at("temperature"), 0.1 + 0.2);
  EXPECT_EQ(json.at("sets").at(1).at("sampling").at("top_k"), 7);
  RunSettings run;
  base::Fields fields = base::fields_of(run);
  base::settings_from_json(fields, base::parse_json(json.dump(), "saved"), "saved");
  EXPECT_EQ(json_of(run), json);
  expect_error(Code::corruption, {"saved", "object"},
               [&] { base::settings_from_json(fields, base::Json::array(), "saved"); });
  expect_error(Code::invalid_argument, {"saved", "2^63"}, [&] {
    base::settings_from_json(fields, base::parse_json(R"({"seed": 9223372036854775808})", "saved"), "saved");
  });
}

TEST(Settings, HelpShowsNameKindTextDefaultAndRangeOfEveryField) {
  RunSettings run;
  base::Fields fields = base::fields_of(run);
  const std::string help = base::settings_help(fields);
  EXPECT_THAT(help, HasSubstr("[rollout.sampling] how tokens are drawn"));
  EXPECT_THAT(
      help,
      HasSubstr("--rollout.sampling.temperature=NUMBER\n      softmax temperature\n      default 1.0; 0 to 10\n"));
  EXPECT_THAT(help,
              HasSubstr("--rollout.profile=TEXT\n      precision\n      default \"fp8\"; one of f32 | bf16 | fp8\n"));
  EXPECT_THAT(help, HasSubstr("--output.every_s=NUMBER\n      seconds between two lines\n      default 1.5; at least "
                              "0.1; may change on resume"));
  for (std::string name : base::setting_names(fields)) EXPECT_THAT(help, HasSubstr("--" + name + "="));
  EXPECT_THAT(base::setting_names(fields),
              ElementsAre("seed", "rollout.profile", "rollout.sampling.temperature", "rollout.sampling.top_k",
                          "rollout.stop", "sets.N.path", "sets.N.num_samples", "sets.N.sampling.temperature",
                          "sets.N.sampling.top_k", "pass_at", "output.color", "output.every_s"));
}

TEST(Settings, ChangesAreListedWithWhatTheyMeanForAResumedRun) {
  base::Json saved = json_of(RunSettings());
  saved["rollout"]["gone"] = 5;
  saved["rollout"].erase("profile");
  RunSettings run;
  run.output.color = false;
  run.rollout.sampling.temperature = 0.5;
  run.sets.resize(1);
  base::Fields fields = base::fields_of(run);
  std::vector<std::string> lines;
  for (const base::SettingChange& change : base::setting_changes(fields, saved)) {
    lines.push_back(change.name + " " + change.before.dump() + " " + change.after.dump() +
                    (change.resume == base::Resume::harmless ? " harmless" : " alters"));
  }
  EXPECT_THAT(lines, ElementsAre("rollout.profile null \"fp8\" alters", "rollout.sampling.temperature 1.0 0.5 alters",
                                 HasSubstr("sets [] [{\"path\":\"\""), "output.color true false harmless",
                                 "rollout.gone 5 null alters"));
  EXPECT_TRUE(base::setting_changes(fields, base::settings_to_json(fields)).empty());
}

TEST(Settings, ValuesSetByCodeAreChecked) {
  RunSettings run;
  base::Fields fields = base::fields_of(run);
  base::check_settings(fields, "defaults");
  run.sets.resize(2);
  run.sets[1].num_samples = 0;
  expect_error(Code::invalid_argument, {"recipe", "sets.1.num_samples = 0"},
               [&] { base::check_settings(fields, "recipe"); });
}

TEST(Settings, AFileIsReadWithItsNameInMessages) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "settings_test.toml";
  base::write_file_atomic(path, "seed = 1\nsed = 2\n");
  RunSettings run;
  base::Fields fields = base::fields_of(run);
  expect_error(Code::invalid_argument, {path.string() + ":2:", "did you mean \"seed\""},
               [&] { base::read_settings(fields, path); });
  expect_error(Code::not_found, {"no_such.toml"}, [&] { base::read_settings(fields, "no_such.toml"); });
}

struct Twice {
  int64_t a = 0, b = 0;
  template <class V>
  void visit(V&& v) {
    v("x", a, "one");
    v("x", b, "two");
  }
};

TEST(Settings, TwoFieldsOfOneNameAreOurBug) {
  Twice twice;
  expect_error(Code::internal, {"two settings are named x"}, [&] { base::fields_of(twice); });
}

}  // namespace
