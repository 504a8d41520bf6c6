#include "controller/inputs.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "controller/scratch.h"
#include "controller/tiny_inputs.h"

namespace controller {
namespace {
using base::Code;
using test::expect_error;

// Five tokens in a model's vocabulary of eight, two problems, one demonstration, one set.
class InputsTest : public ::testing::Test {
 protected:
  InputsTest() {
    write_tokenizer(folder(), {"<pad>", "<bos>", "<eos>"}, "ab");
    write_config(8, 2);
    write_rows(folder() / "rows.jsonl",
               {{{"prompt", "<bos>ab"}, {"label", "a"}}, {{"prompt", "<bos>b"}, {"label", "b"}}});
    write_rows(folder() / "shown.jsonl", {{{"prompt", "<bos>ab"}, {"response", "abab"}}});
    settings_.model.config = (folder() / "config.json").string();
    settings_.tokenizer.path = folder().string();
    settings_.run.steps = settings_.warmup.steps = 1;
    use(settings_.data.rows, "rows.jsonl");
    use(settings_.warmup.data.rows, "shown.jsonl");
    settings_.rollout.engine.max_context = 16;
    settings_.rollout.sampling.max_new_tokens = 5;
    EvalSetSettings& set = settings_.eval.sets.emplace_back();
    set.name = "held_out";
    use(set.data, "rows.jsonl");
  }
  const fs::path& folder() const { return scratch_.path(); }
  void write_config(int64_t vocab, int64_t eos) {
    Json config = small_config(vocab, 16, {"sliding_attention"});
    config["eos_token_id"] = eos;
    base::write_file_atomic(folder() / "config.json", config.dump());
  }
  void use(data::DatasetSettings& rows, const std::string& name) {
    rows.path = (folder() / name).string();
    rows.apply_chat_template = false;
  }
  Inputs read(Purpose purpose = Purpose::training) const { return read_inputs(settings_, purpose); }

  RunSettings settings_;

 private:
  Scratch scratch_;
};

TEST_F(InputsTest, EverythingIsReadAndTheIdsWithoutATokenAreKnown) {
  const Inputs inputs = read();
  EXPECT_EQ(inputs.problems.size(), 2u);
  EXPECT_EQ(inputs.demonstrations.size(), 1u);
  EXPECT_EQ(inputs.sets.at(0).problems.size(), 2u);
  EXPECT_EQ(inputs.vocabulary().ids_without_token, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(inputs.longest, 3 + 5) << "a prompt and the longest answer, or a demonstration with its end";
}

TEST_F(InputsTest, EvaluationAloneNeedsNoTrainingData) {
  settings_.data.rows.path = settings_.warmup.data.rows.path = "nowhere.jsonl";
  EXPECT_TRUE(read(Purpose::evaluation).problems.empty());
}

TEST_F(InputsTest, FingerprintChangesWithTheRows) {
  const std::string before = read().fingerprint;
  EXPECT_EQ(read().fingerprint, before);
  write_rows(folder() / "shown.jsonl", {{{"prompt", "<bos>ab"}, {"response", "abaa"}}});
  EXPECT_NE(read().fingerprint, before);
}

TEST_F(InputsTest, TokenizerOfAnotherModelIsRefused) {
  write_config(4, 2);
  expect_error(Code::invalid_argument, {"ids up to 4", "vocab_size is 4"}, [&] { read(); });
  write_config(8, 3);
  expect_error(Code::invalid_argument, {"end of sequence is id 2", "eos_token_id is 3"}, [&] { read(); });
}

TEST_F(InputsTest, PromptWithoutRoomForAnAnswerIsNamedWithTheSettings) {
  settings_.rollout.engine.max_context = 3;
  expect_error(Code::invalid_argument,
               {"rows.jsonl:1", "3 tokens", "rollout.engine.max_context = 3", "data.max_prompt_tokens"},
               [&] { read(); });
}

TEST_F(InputsTest, EmptySetIsAnErrorAtTheStart) {  // ev-08
  write_rows(folder() / "empty.jsonl", {});
  use(settings_.eval.sets[0].data, "empty.jsonl");
  expect_error(Code::invalid_argument, {"empty.jsonl"}, [&] { read(); });
}

}  // namespace
}  // namespace controller
