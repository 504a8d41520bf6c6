// furlong compare as it is called: what it prints, what it writes, its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/captured.h"
#include "base/expect_error.h"
#include "base/files.h"
#include "base/json.h"
#include "checkpoint/folders.h"
#include "checkpoint/save.h"
#include "checkpoint/temporary_folder.h"

namespace {

using base::Code;
using test::Ran;
using testing::AllOf;
using testing::HasSubstr;

class Compare : public testing::Test {
 protected:
  Compare() {
    checkpoint::save_weights(folder_ / "m", test::tiny_weights(), checkpoint::SaveAs::bf16);
    model::Weights other = test::tiny_weights().clone();
    other.config.sliding_window = 7;
    checkpoint::save_weights(folder_ / "other", other, checkpoint::SaveAs::bf16);
    base::write_file_atomic(folder_ / "tokens.jsonl",
                            "{\"input_ids\": [5, 17, 3, 9, 11, 2, 30, 31, 32, 8, 1, 2]}\n{\"ids\": [4, 4, 4, 1]}\n");
  }
  Ran compare(const std::string& a, const std::string& b, std::vector<std::string> options) {
    options.insert(options.begin(), {a, b});
    return test::run(apps::run_compare, options);
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string tokens() const { return "--tokens=" + at("tokens.jsonl"); }

  test::TemporaryFolder folder_;
};

TEST_F(Compare, OneProfileOnAllSidesIsEqualToTheBitAndExitsWith0) {
  for (const std::string profile : {"f32", "bf16", "fp8", "fp8_fp4"}) {
    const std::string engine = "engine:" + profile + "@" + at("m"), actor = "actor:" + profile + "@" + at("m");
    const Ran ran = compare(engine, actor, {tokens(), "--prefill_chunk=3", "--walk=always"});
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, AllOf(HasSubstr("all 14 log-probs are equal to the bit"),
                                  HasSubstr("layer by layer: equal to the bit at every site"), HasSubstr(engine)));
    EXPECT_EQ(compare(actor, profile + "@" + at("m"), {tokens()}).code, 0) << profile;
  }
}

TEST_F(Compare, ADifferenceIsPlacedNamedAndExitsWith1) {
  const Ran ran = compare(at("m"), at("other"), {tokens(), "--html=" + at("page.html")});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output,
              AllOf(HasSubstr("largest differences"), HasSubstr("tokens.jsonl:1"),
                    HasSubstr("attention differs in 5 of 12 tokens at layer 0: sliding_window is 8 on A and 7 on B")));
  EXPECT_THAT(base::read_file(at("page.html")),
              AllOf(HasSubstr("<svg"), HasSubstr("sliding_window is 8 on A and 7 on B")));
  EXPECT_EQ(compare(at("m"), at("other"), {tokens(), "--max_abs=1000", "--walk=never"}).code, 0);
}

TEST_F(Compare, JsonIsOneLineOfJson) {
  const Ran ran = compare(at("m"), at("other"), {tokens(), "--json"});
  const base::Json json = base::parse_json(ran.output, "output");
  EXPECT_EQ(ran.output.find('\n'), ran.output.size() - 1);
  EXPECT_EQ(json["walks"][0]["diagnosis"]["causes"][0]["id"], "window");
  EXPECT_GT(json["log_probs"]["max"], 0);
}

// What `furlong score` computes, written as a file of log-probs, is what a side computes: an independent way in.
TEST_F(Compare, AFileIsComparedAtItsTemperatureAndItsTokens) {
  const auto score = [&](double temperature) {
    return test::run(apps::run_score, {at("m"), at("tokens.jsonl"), fmt::format("--temperature={}", temperature)})
        .output;
  };
  base::write_file_atomic(folder_ / "tokens.jsonl",
                          "{\"ids\": [5, 17, 3, 9, 11, 2, 30, 31, 32, 8, 1, 2]}\n{\"ids\": [4, 4, 4, 1]}\n");
  std::string file;
  std::istringstream lines(score(0.6));
  for (std::string line; std::getline(lines, line);) {
    const base::Json scored = base::parse_json(line, "score");
    base::Json values = {nullptr};
    for (const base::Json& value : scored["log_probs"]) values.push_back(value);
    file += base::to_line({{"input_ids", scored["ids"]}, {"log_probs", values}, {"temperature", 0.6}}) + "\n";
  }
  base::write_file_atomic(folder_ / "theirs.jsonl", file);
  const Ran ran = compare(at("theirs.jsonl"), "actor:f32@" + at("m"), {});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, AllOf(HasSubstr("temperature 0.6"), HasSubstr("all 14 log-probs are equal to the bit")));
  test::expect_error(Code::invalid_argument, {"theirs.jsonl", "temperature 0.6", "--temperature=0.6"},
                     [&] { compare(at("theirs.jsonl"), at("m"), {"--temperature=1"}); });
  const Ran other = compare(at("other"), at("theirs.jsonl"), {});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.output, HasSubstr("not compared layer by layer: " + at("theirs.jsonl") + " gives log-probs only"));
}

TEST_F(Compare, WhatCannotBeComparedIsRefusedWithTheReason) {
  EXPECT_THROW(compare(at("m"), at("m"), {}), apps::UsageError) << "no tokens";
  EXPECT_THROW(compare(at("m"), at("m"), {tokens(), "--walks=1"}), apps::UsageError);
  base::write_file_atomic(folder_ / "tokens.jsonl", "{\"ids\": [4, 40]}\n");
  test::expect_error(Code::invalid_argument, {"tokens.jsonl:1", "id 40", "0..39"},
                     [&] { compare(at("m"), at("m"), {tokens()}); });
  base::write_file_atomic(folder_ / "tokens.jsonl", "{\"text\": \"x\"}\n");
  test::expect_error(Code::invalid_argument, {"tokens.jsonl:1", "--tokenizer"},
                     [&] { compare(at("m"), at("m"), {tokens()}); });
  base::write_file_atomic(folder_ / "tokens.jsonl", "{\"ids\": [4]}\n");
  test::expect_error(Code::invalid_argument, {"two tokens"}, [&] { compare(at("m"), at("m"), {tokens()}); });
}

}  // namespace
