#include "compare/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/heat_map.h"
#include "compare/models.h"

namespace compare {
namespace {

using test::compared;
using test::plain_side;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Comparison example() {
  model::Weights other = test::compare_weights().clone();
  other.config.sliding_window = 7;
  PlainSide a = plain_side(test::compare_weights(), "f32", "first"), b = plain_side(other, "f32", "<second>");
  Comparison comparison = compared(a, b);
  comparison.decode = [](std::span<const int32_t> ids) {
    std::string text;
    for (const int32_t id : ids) text += id == 41 ? "<&\n" : std::string(1, static_cast<char>('0' + id % 10));
    return text;
  };
  return comparison;
}

TEST(Output, TheTextHasFiguresPlacesAndTheDiagnosis) {
  const std::string text = to_text(example());
  EXPECT_THAT(text,
              AllOf(HasSubstr("A  first"), HasSubstr("B  <second>"), HasSubstr("60 tokens of 2 sequences"),
                    HasSubstr("p99"), HasSubstr("largest differences"), HasSubstr("tokens:1"),
                    HasSubstr("attention differs in 33 of 40 tokens at layer 0: sliding_window is 8 on A and 7 on B"),
                    HasSubstr("first 7, largest relative difference ")));
}

TEST(Output, EqualityIsSaidOutright) {
  PlainSide a = plain_side(test::compare_weights(), "f32"), b = plain_side(test::compare_weights(), "f32");
  EXPECT_THAT(to_text(compared(a, b)), HasSubstr("all 58 log-probs are equal to the bit"));
  EXPECT_THAT(to_html(compared(a, b)), HasSubstr("All 58 log-probs are equal to the bit"));
  EXPECT_EQ(to_json(compared(a, b))["log_probs"]["all_equal"], true);
}

TEST(Output, TheJsonHoldsWhatTheComparisonHolds) {
  const Comparison comparison = example();
  const base::Json json = base::parse_json(base::to_line(to_json(comparison)), "json");
  EXPECT_EQ(json["log_probs"]["max"], comparison.differences.absolute.max);
  EXPECT_EQ(json["log_probs"]["tokens"], 58);
  EXPECT_EQ(json["log_probs"]["worst"].size(), 10u);
  EXPECT_EQ(json["walks"][0]["parting"]["site"], "attention");
  EXPECT_EQ(json["walks"][0]["parting"]["first"], 7);
  EXPECT_EQ(json["walks"][0]["diagnosis"]["causes"][0]["id"], "window");
  EXPECT_EQ(json["walks"][0]["sites"][0]["site"], "embedding");
}

TEST(Output, ThePageStandsAlone) {
  const std::string html = to_html(example());
  EXPECT_THAT(html, AllOf(HasSubstr("<svg"), HasSubstr("layer 3"), HasSubstr("sliding_window is 8 on A and 7 on B"),
                          HasSubstr("&lt;second&gt;"), HasSubstr("&lt;&amp;")));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<second>")), Not(HasSubstr("<script")), Not(HasSubstr("src=")),
                          Not(HasSubstr("href=")), Not(HasSubstr("url(")), Not(HasSubstr("@import"))));
}

TEST(HeatMap, LevelsArePowersOfTen) {
  EXPECT_EQ(heat_level(0), 0);
  EXPECT_EQ(heat_level(1e-12), 1);
  EXPECT_EQ(heat_level(2e-7), 2);
  EXPECT_EQ(heat_label(heat_level(2e-7)), "1e-7");
  EXPECT_EQ(heat_level(0.02), 7);
  EXPECT_EQ(heat_label(heat_level(0.02)), "1e-2");
  EXPECT_EQ(heat_level(0.1), 8);
  EXPECT_EQ(heat_level(INFINITY), 8);
}

TEST(HeatMap, CellsOfOneLevelSideBySideAreOneShape) {
  const std::string svg = heat_map({{"x", {0, 0, 0, 0.5f, 0.5f, 0}}});
  size_t shapes = 0;
  for (size_t at = svg.find('M'); at != std::string::npos; at = svg.find('M', at + 1)) ++shapes;
  EXPECT_EQ(shapes, 3u);
  EXPECT_THAT(svg, HasSubstr("h54.00"));  // three cells of 18
}

}  // namespace
}  // namespace compare
