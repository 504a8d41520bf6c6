// furlong inspect and furlong convert as they are called: what they print, and their exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/captured.h"
#include "base/json.h"
#include "checkpoint/folders.h"
#include "checkpoint/save.h"
#include "checkpoint/temporary_folder.h"

namespace {

using test::Ran;
using test::run;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Ran inspect(const std::filesystem::path& folder, const std::string& option = "--json=false") {
  return run(apps::run_inspect, {folder.string(), option});
}

TEST(Inspect, AWholeFolderIsShownByTensorsPartsAndFormats) {
  const test::TemporaryFolder folder;
  checkpoint::save_weights(folder / "x", test::tiny_weights(), checkpoint::SaveAs::published);
  const Ran ran = inspect(folder / "x");
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, AllOf(HasSubstr("layers.{0..3}.ffn.experts.{0..4}.w1.weight"), HasSubstr("routed experts"),
                                HasSubstr("F8_E8M0"), HasSubstr("used by a token"),
                                HasSubstr("every tensor of the config is there")));
  EXPECT_THAT(ran.output, Not(HasSubstr("layers.0.ffn.experts.3.w1.weight")));
  EXPECT_THAT(inspect(folder / "x", "--tensors").output, HasSubstr("layers.0.ffn.experts.3.w1.weight"));
}

TEST(Inspect, EverythingThatDoesNotFitIsListedToTheEnd) {
  const test::TemporaryFolder folder;
  test::Stored tensors = test::native_tensors(test::tiny_weights());
  std::vector<std::string> removed;
  for (const auto& [name, value] : tensors)
    if (name.ends_with(".w2.weight")) removed.push_back(name);
  ASSERT_GT(removed.size(), 20u);
  for (const std::string& name : removed) tensors.erase(name);
  tensors["layers.0.attn.nope.weight"] = at::zeros({1});
  tensors["norm.weight"] = at::zeros({63});
  test::write_folder(folder / "x", tensors);
  const Ran ran = inspect(folder / "x");
  EXPECT_EQ(ran.code, 1);
  for (const std::string& name : removed) EXPECT_THAT(ran.output, HasSubstr("\n  " + name + "\n"));
  EXPECT_THAT(ran.output,
              AllOf(HasSubstr(fmt::format("{} missing:", removed.size())), HasSubstr("1 unexpected:"),
                    HasSubstr("layers.0.attn.nope.weight"), HasSubstr("norm.weight is F32 [63], it should be [64]")));
  const Ran as_json = inspect(folder / "x", "--json");
  EXPECT_EQ(as_json.code, 1);
  const base::Json json = base::parse_json(as_json.output, "inspect");
  EXPECT_EQ(json["missing"].size(), removed.size());
  EXPECT_EQ(json["unexpected"], base::Json::array({"layers.0.attn.nope.weight"}));
  EXPECT_EQ(json["of_another_form"].size(), 1u);
  EXPECT_EQ(json["fits"], false);
}

TEST(Inspect, JsonHasEveryTensorAndTheTotals) {
  const test::TemporaryFolder folder;
  const model::Weights weights = test::tiny_weights();
  checkpoint::save_weights(folder / "x", weights, checkpoint::SaveAs::bf16);
  const base::Json json = base::parse_json(inspect(folder / "x", "--json").output, "inspect");
  EXPECT_EQ(json["tensors"].size(), test::native_tensors(weights).size());
  EXPECT_EQ(json["fits"], true);
  int64_t bytes = 0, parameters = 0;
  for (const base::Json& tensor : json["tensors"]) bytes += tensor["bytes"].get<int64_t>();
  for (const base::Json& part : json["parts"])
    if (part["part"] != "MTP block" && part["part"] != "expert tables") parameters += part["parameters"].get<int64_t>();
  EXPECT_EQ(json["totals"]["bytes"], bytes);
  EXPECT_EQ(json["totals"]["parameters"], parameters);
}

TEST(Inspect, AConfigAloneIsCounted) {
  const test::TemporaryFolder folder;
  base::write_file_atomic(folder / "config.json", test::tiny_config_json().dump());
  const Ran ran = inspect(folder.path());
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, AllOf(HasSubstr("routed experts"), HasSubstr("no weights")));
}

TEST(Convert, SaysWhatItDidAndThatItWasVerified) {
  const test::TemporaryFolder folder;
  checkpoint::save_weights(folder / "in", test::tiny_weights(), checkpoint::SaveAs::bf16);
  const std::string out = (folder / "out").string();
  const Ran ran = run(apps::run_convert,
                      {(folder / "in").string(), out, "--to", "fp8", "--names=hf", "--shard_bytes=50000", "--resume"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, AllOf(HasSubstr(out), HasSubstr("file(s)"), HasSubstr("got new codes and scales"),
                                HasSubstr("parameters equal"), HasSubstr("parameters quantised")));
  EXPECT_EQ(inspect(out).code, 0);
}

TEST(Convert, ItsHelpSaysEveryForm) {
  EXPECT_THAT(run(apps::run_convert, {"--help"}).output,
              AllOf(HasSubstr("IN OUT"), HasSubstr("fp8_fp4"), HasSubstr("--resume"), HasSubstr("--shard_bytes")));
  EXPECT_THROW(run(apps::run_convert, {"in", "out", "--to=fp4"}), apps::UsageError);
  EXPECT_THROW(run(apps::run_convert, {"in"}), apps::UsageError);
}

}  // namespace
