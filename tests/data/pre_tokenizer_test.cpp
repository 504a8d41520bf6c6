// Split behaviours and patterns. Expected pieces follow from the definitions of the tokenizers library, worked out by
// hand.
#include "data/pre_tokenizer.h"

#include <gmock/gmock.h>

#include "data/golden_files.h"
#include "data/utf8.h"

namespace data {
namespace {

using base::Json;
using data_test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;

const Json kByteLevel = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};

std::vector<std::string> pieces_of(const std::vector<Json>& steps, const std::string& text) {
  Json list = steps;
  list.push_back(kByteLevel);
  const Json spec = {{"type", "Sequence"}, {"pretokenizers", list}};
  const Pieces pieces = PreTokenizer(spec, "t").split(text);
  std::vector<std::string> texts;
  for (const ByteRange& range : pieces.ranges)
    texts.push_back(pieces.text.substr(range.begin, range.end - range.begin));
  return texts;
}

Json split(const std::string& pattern, const std::string& behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
}

TEST(PreTokenizer, EachSplitBehaviour) {
  const std::string text = "the-final--countdown";  // the example of the library's documentation
  const auto with = [&](const std::string& behavior) { return pieces_of({split("-", behavior)}, text); };
  EXPECT_THAT(with("Removed"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(with("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(with("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(with("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(with("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(PreTokenizer, InvertSwapsMatchesAndTheRest) {
  EXPECT_THAT(pieces_of({split("[a-z]+", "Removed", true)}, "ab-cd"), ElementsAre("ab", "cd"));
  EXPECT_THAT(pieces_of({split("[a-z]+", "Removed", false)}, "ab-cd"), ElementsAre("-"));
}

TEST(PreTokenizer, ATextPatternIsNotARegularExpression) {
  const Json step = {{"type", "Split"}, {"pattern", {{"String", "a.b|"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(pieces_of({step}, "axb|a.b|c"), ElementsAre("axb|", "a.b|", "c"));
}

TEST(PreTokenizer, DigitsStandAloneOrTogether) {
  const auto with = [](bool individual) {
    const Json step = {{"type", "Digits"}, {"individual_digits", individual}};
    return pieces_of({step}, "a12\u00BDb\u0663");
  };
  EXPECT_THAT(with(true), ElementsAre("a", "1", "2", "\u00BD", "b", "\u0663"));
  EXPECT_THAT(with(false), ElementsAre("a", "12\u00BD", "b", "\u0663"));
}

TEST(PreTokenizer, LookAroundDoesNotSeeBeyondThePiece) {
  // Inside "a  " the run of spaces is followed by nothing, although a digit follows in the text.
  EXPECT_THAT(pieces_of({split("\\d", "Isolated"), split("\\s+(?!\\S)|\\s+", "Isolated")}, "a  1"),
              ElementsAre("a", "  ", "1"));
}

TEST(PreTokenizer, ByteLevelMayAddASpace) {
  const PreTokenizer spaced({{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}}, "t");
  EXPECT_EQ(spaced.split("hi there").text, " hi there");
  EXPECT_EQ(spaced.split(" hi").text, " hi");
  EXPECT_TRUE(spaced.split("").ranges.empty());
}

TEST(PreTokenizer, EmptyMatchesCutWithoutMakingEmptyPieces) {
  EXPECT_THAT(pieces_of({split("x*", "Isolated")}, "\u00E9xx\u00E9"), ElementsAre("\u00E9", "xx", "\u00E9"));
}

TEST(PreTokenizer, ANegatedClassDoesNotMatchAMongolianVowelSeparatorAsSpace) {  // where PCRE2's own \s differs
  EXPECT_THAT(pieces_of({split("\\s+", "Isolated")},
                        "a\xE1\xA0\x8E"
                        "b\xC2\x85"
                        "c"),
              ElementsAre("a\xE1\xA0\x8E"
                          "b",
                          "\xC2\x85", "c"));
}

TEST(PreTokenizer, RefusesPatternsItCannotRead) {
  const auto error = [](const std::string& pattern) {
    return error_of([&] { pieces_of({split(pattern, "Isolated")}, "a"); });
  };
  for (const std::string bad : {"(", "[a", "\\p{Nope}", "a{2,1}", "*"})
    EXPECT_THAT(error(bad), HasSubstr("step 0")) << bad;
  for (const std::string foreign :
       {"\\h", "\\bx", "[a&&b]", "[[a]]", "(?m:.)", "a{,2}", "a{1,2}+", "[\\S]", "\\xff", "(*UCP)a", "\\K"}) {
    EXPECT_THAT(error(foreign), HasSubstr("not supported")) << foreign;
  }
  EXPECT_THAT(error(std::string(100'000, 'a')), HasSubstr("100000 bytes"));
  EXPECT_THAT(error_of([] { pieces_of({split("a", "Sideways")}, "a"); }), HasSubstr("Sideways"));
}

TEST(PreTokenizer, APatternThatExplodesIsStopped) {
  std::string text(64, 'a');
  text.push_back('b');
  const std::string message = error_of([&] { pieces_of({split("(a|aa)+$", "Isolated")}, text); });
  EXPECT_THAT(message, HasSubstr("cannot be matched"));
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("a\u00E9\u4E2D\U0001F600"), std::string("a\u00E9\u4E2D\U0001F600").size());
  const std::vector<std::pair<std::string, size_t>> bad = {
      {"a\x80", 1}, {"\xC0\x80", 0}, {"\xED\xA0\x80", 0}, {"\xF4\x90\x80\x80", 0}, {"ab\xE4\xBD", 2}, {"\xF5", 0}};
  for (const auto& [text, at] : bad) EXPECT_EQ(find_invalid_utf8(text), at);
}

TEST(Utf8, ReplacesMaximalSubparts) {  // Unicode 15, table 3-8
  const auto lossy = [](const std::string& bytes) {
    std::string text;
    EXPECT_EQ(append_lossy(bytes, true, text), bytes.size());
    return text;
  };
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(lossy("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(lossy("\xF0\x9F\x98"), r);
  EXPECT_EQ(lossy("\xED\xA0\x80"), r + r + r);
  std::string text;
  EXPECT_EQ(append_lossy("a\xF0\x9F", false, text), 1U);
  EXPECT_EQ(text, "a");
}

}  // namespace
}  // namespace data
