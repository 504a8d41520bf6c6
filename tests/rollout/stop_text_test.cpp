#include "rollout/stop_text.h"

#include <gtest/gtest.h>

namespace rollout {
namespace {

TEST(StopText, FindsATextAcrossTokens) {
  const std::vector<std::string> stops = {"Answer:"};
  StopText text(stops);
  EXPECT_FALSE(text.add("The Ans"));
  EXPECT_FALSE(text.add("we"));
  const auto match = text.add("r: 12");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->at, 4u);
  EXPECT_EQ(text.text(), "The Answer: 12");
}

TEST(StopText, FindsATextInsideOneToken) {
  const std::vector<std::string> stops = {"\n"};
  StopText text(stops);
  EXPECT_FALSE(text.add("a"));
  EXPECT_EQ(text.add("b\nc\n")->at, 2u);
}

TEST(StopText, FindsBytesOfACharacterThatTokensSplit) {
  const std::vector<std::string> stops = {"\xe2\x82\xac"};
  StopText text(stops);
  EXPECT_FALSE(text.add("5\xe2"));
  EXPECT_FALSE(text.add("\x82"));
  EXPECT_EQ(text.add("\xac")->at, 1u);
}

TEST(StopText, TakesTheTextThatEndsFirstAndOfThoseTheLongest) {
  const std::vector<std::string> stops = {"cd", "bc", "abc"};
  StopText text(stops);
  EXPECT_FALSE(text.add("a"));
  const auto match = text.add("bcd");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->which, 2u);
  EXPECT_EQ(match->at, 0u);
}

TEST(StopText, EmptyTokensAndRepeatedPrefixesAreHarmless) {
  const std::vector<std::string> stops = {"aab"};
  StopText text(stops);
  EXPECT_FALSE(text.add(""));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(text.add("a"));
  EXPECT_FALSE(text.add(""));
  EXPECT_EQ(text.add("b")->at, 3u);
}

}  // namespace
}  // namespace rollout
