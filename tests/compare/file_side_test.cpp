#include "compare/file_side.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "base/files.h"
#include "checkpoint/temporary_folder.h"
#include "compare/token_file.h"

namespace compare {
namespace {

using base::Code;
using test::expect_error;

class FileSideTest : public testing::Test {
 protected:
  FileSide read(const std::string& text) {
    base::write_file_atomic(folder_ / "x.jsonl", text);
    return {"x", folder_ / "x.jsonl"};
  }
  void expect_refused(Code code, const std::string& line, std::vector<std::string> parts) {
    const std::string good = R"({"input_ids": [1, 2], "log_probs": [null, -1], "temperature": 1.0})";
    parts.push_back("x.jsonl:2");
    expect_error(code, parts, [&] { read(good + "\n" + line + "\n"); });
  }
  test::TemporaryFolder folder_;
};

TEST_F(FileSideTest, GivesTheValuesOfALineForItsIds) {
  FileSide side = read(
      "{\"input_ids\": [5, 17, 3], \"log_probs\": [null, -1.25, -0.1], \"temperature\": 0.6}\n\n"
      "{\"input_ids\": [5], \"log_probs\": [null], \"temperature\": 0.6, \"more\": 1}\n"
      "{\"input_ids\": [5, 17], \"log_probs\": [null, null], \"temperature\": 0.6}\n");
  EXPECT_EQ(side.temperature(), 0.6);
  const std::vector<Sequence> sequences = side.sequences();
  ASSERT_EQ(sequences.size(), 3u);
  EXPECT_EQ(sequences[1].ids, Ids{5});
  EXPECT_TRUE(sequences[2].where.ends_with("x.jsonl:4"));
  const std::vector<LogProbs> scores = side.score(sequences, 0.6, {});
  EXPECT_EQ(scores[0], (LogProbs{std::nullopt, -1.25f, -0.1f}));
  EXPECT_EQ(scores[1], LogProbs{std::nullopt});
  EXPECT_EQ(scores[2], (LogProbs{std::nullopt, std::nullopt}));
}

TEST_F(FileSideTest, LinesOfTheSameIdsAreTakenInTurn) {
  FileSide side = read(
      "{\"input_ids\": [5, 6], \"log_probs\": [null, -1], \"temperature\": 1}\n"
      "{\"input_ids\": [5, 6], \"log_probs\": [null, -2], \"temperature\": 1}\n");
  const std::vector<LogProbs> scores = side.score(side.sequences(), 1, {});
  EXPECT_EQ(scores[0][1], -1.0f);
  EXPECT_EQ(scores[1][1], -2.0f);
}

// lp-09: no digit of an f32 is lost on the way.
TEST_F(FileSideTest, KeepsEveryBitOfAnF32) {
  FileSide side = read("{\"input_ids\": [5, 6], \"log_probs\": [null, -0.0012000000569969416], \"temperature\": 1}");
  EXPECT_EQ(side.score(side.sequences(), 1, {})[0][1], -0.0012f);
}

// lp-08: what a server writes for an impossible token is read.
TEST_F(FileSideTest, ReadsTheFloorsOfOtherEngines) {
  FileSide side =
      read("{\"input_ids\": [5, 6, 7], \"log_probs\": [null, -3.4028234663852886e38, -9999.0], \"temperature\": 1}");
  EXPECT_EQ(side.score(side.sequences(), 1, {})[0][2], -9999.0f);
}

TEST_F(FileSideTest, EveryLineIsCheckedAndNamed) {
  expect_refused(Code::corruption, R"({"input_ids": [1, 2], "log_probs": [null], "temperature": 1})",
                 {"1 log_probs for 2 input_ids", "put a null before"});
  expect_refused(Code::corruption, R"({"input_ids": [1, 2], "log_probs": [-1, -2], "temperature": 1})",
                 {"log_probs[0] is -1", "should be null"});
  expect_refused(Code::corruption, R"({"input_ids": [1, 2], "log_probs": [null, "x"], "temperature": 1})",
                 {"log_probs[1]", "finite number"});
  expect_refused(Code::corruption, R"({"input_ids": [1, 2], "log_probs": [null, 0.5], "temperature": 1})",
                 {"log_probs[1] is 0.5", "not above 0"});
  expect_refused(Code::corruption, R"({"input_ids": [1, -2], "log_probs": [null, -1], "temperature": 1})",
                 {"element 1", "-2"});
  expect_refused(Code::corruption, R"({"input_ids": [1, 2.5], "log_probs": [null, -1], "temperature": 1})",
                 {"element 1", "2.5"});
  expect_refused(Code::corruption, R"({"input_ids": [], "log_probs": [], "temperature": 1})", {"no tokens"});
  expect_refused(Code::corruption, R"({"input_ids": [1, 2], "log_probs": [null, -1]})", {"temperature"});
  expect_refused(Code::corruption, R"({"log_probs": [null, -1], "temperature": 1})", {"input_ids"});
  // lp-04
  expect_refused(Code::corruption, R"({"input_ids": [1, 2], "log_probs": [null, -1], "temperature": 0})",
                 {"temperature 0", "above 0"});
  expect_refused(Code::corruption, R"({"input_ids": [1, 2], "log_probs": [null, -1], "temperature": -1})", {"above 0"});
  expect_refused(Code::invalid_argument, R"({"input_ids": [1, 2], "log_probs": [null, -1], "temperature": 0.6})",
                 {"temperature 0.6", "the lines before have 1"});
  expect_error(Code::invalid_argument, {"x.jsonl", "no lines"}, [&] { read("\n"); });
}

TEST_F(FileSideTest, AnotherTemperatureAndUnknownTokensAreRefused) {
  FileSide side = read(R"({"input_ids": [1, 2], "log_probs": [null, -1], "temperature": 0.6})");
  expect_error(Code::invalid_argument, {"temperature 0.6", "the comparison is at 1", "--temperature=0.6"},
               [&] { side.score(side.sequences(), 1, {}); });
  const std::vector<Sequence> other = {{{1, 3}, "tokens.jsonl:3"}};
  expect_error(Code::not_found, {"x.jsonl", "tokens.jsonl:3"}, [&] { side.score(other, 0.6, {}); });
}

TEST_F(FileSideTest, TokenFilesHoldIdsOrTexts) {
  base::write_file_atomic(folder_ / "t.jsonl",
                          "{\"ids\": [1, 2]}\n{\"text\": \"ab\"}\n{\"input_ids\": [3], \"log_probs\": [null]}\n");
  const Encode letters = [](const std::string& text, const std::string&) { return Ids(text.begin(), text.end()); };
  const std::vector<Sequence> sequences = read_tokens(folder_ / "t.jsonl", letters);
  ASSERT_EQ(sequences.size(), 3u);
  EXPECT_EQ(sequences[0].ids, (Ids{1, 2}));
  EXPECT_EQ(sequences[1].ids, (Ids{'a', 'b'}));
  EXPECT_EQ(sequences[2].ids, (Ids{3}));
  base::write_file_atomic(folder_ / "t.jsonl", "{\"text\": \"a\"}\n{\"prompt\": \"ab\"}\n");
  expect_error(Code::corruption, {"t.jsonl:2", "input_ids", "text"},
               [&] { read_tokens(folder_ / "t.jsonl", letters); });
  base::write_file_atomic(folder_ / "t.jsonl", "{\"text\": \"\"}\n");
  expect_error(Code::corruption, {"t.jsonl:1", "no tokens"}, [&] { read_tokens(folder_ / "t.jsonl", letters); });
}

}  // namespace
}  // namespace compare
