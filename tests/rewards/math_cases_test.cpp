// Bug reports of users of other scorers (area "verifier"; the id is in each comment), as claims.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "rewards/answer_text.h"
#include "rewards/golden.h"
#include "rewards/math.h"
#include "rewards/math_text.h"
#include "rewards/number.h"

namespace rewards {
namespace {

TEST(MathCases, BothSpellingsOfAnIntegerAreEqual) {  // ver-01
  for (const auto& [response, label] :
       {std::pair{"Answer: 025", "025"}, {"Answer: 25", "025"}, {"Answer: 025", "25"}}) {
    EXPECT_EQ(value_of("math_dapo", response, label), 1) << response << " / " << label;
  }
  EXPECT_EQ(value_of("math_dapo", "Answer: 26", "025"), -1);
}

TEST(MathCases, ControlTokensAtTheEndAreNotPartOfTheAnswer) {  // ver-02
  EXPECT_EQ(value_of("math_dapo",
                     "Answer: 34<\xEF\xBD\x9C"
                     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                     "34"),
            1);
  EXPECT_EQ(value_of("math_dapo", "Answer: 34<|im_end|>\n<|endoftext|>", "34"), 1);
  EXPECT_EQ(drop_control_tokens("a <|b|> c"), "a <|b|> c");
  EXPECT_EQ(drop_control_tokens("x|>"), "x|>");
}

TEST(MathCases, NoLabelMakesAScorerThrowAndHopelessOnesAreRefusedAtLoad) {  // ver-04
  RewardSettings settings;
  for (const std::string kind : {"math_dapo", "math_deepscaler"}) {
    settings.kind = kind;
    for (const std::string label : {"\\frac{3}{7}", "", "nan", "1e999", "[\"72\"]", "inf"}) {
      EXPECT_LE(value_of(kind, "Answer: \\boxed{34}", label), 0) << label;
    }
    for (const std::string label : {"", "  ", "nan", "1e999", "-Infinity"}) {
      EXPECT_THROW(check_label(settings, problem_with(label)), base::Error) << label;
    }
    for (const std::string label : {"\\frac{3}{7}", "72", "025", "Evelyn", "e", "2e3"}) {
      EXPECT_NO_THROW(check_label(settings, problem_with(label))) << label;
    }
  }
  EXPECT_EQ(value_of("math_dapo", "Answer: \\frac{3}{7}", "\\frac{3}{7}"), 1);
}

TEST(MathCases, TheModeOfThinkingIsReadFromThePrompt) {  // ver-08
  RewardSettings settings;
  settings.kind = "math_deepscaler";
  const data::Sample chat = answer("The answer is \\boxed{34}");
  EXPECT_EQ(score_of(settings, problem_with("34", "Q<Assistant></think>"), chat).value, 1);
  const Score thinking = score_of(settings, problem_with("34", "Q<Assistant><think>"), chat);
  EXPECT_EQ(thinking.value, 0);
  EXPECT_EQ(thinking.outcome, Outcome::no_answer);
  EXPECT_EQ(score_of(settings, problem_with("34", "Put it in <think> tags, please."), chat).value, 1);
  settings.require_thought = true;
  EXPECT_EQ(score_of(settings, problem_with("34"), chat).value, 0);
}

TEST(MathCases, OnlyTheLastBoxCounts) {  // ver-10
  const std::string response = "\\boxed{004}. Check again. **Final Answer** \\boxed{004}";
  EXPECT_EQ(value_of("math_deepscaler", response, "4"), 1);
  EXPECT_EQ(value_of("math_deepscaler", response, "4004"), 0);
  EXPECT_EQ(value_of("math_deepscaler", "\\boxed{34} no: \\boxed{3", "34"), 0) << "the last one is not closed";
}

TEST(MathCases, MixedNumbersAreOneNumber) {  // ver-11
  EXPECT_FALSE(same_expression("2 2/3", "2"));
  EXPECT_FALSE(same_expression("4 10/3", "10"));
  EXPECT_TRUE(same_expression("11 5/6", "71/6"));
  EXPECT_TRUE(same_expression("2\\frac{1}{2}", "2.5"));
  EXPECT_FALSE(same_expression("2 2/3", "22/3"));
  EXPECT_FALSE(same_final_answer("2 2/3", "22/3"));
  EXPECT_TRUE(same_final_answer("2 2/3", "8/3"));
}

TEST(MathCases, ScoringWorksInAnyThread) {  // ver-12
  std::vector<double> values(8, -9);
  std::vector<std::thread> threads;
  for (double& value : values)
    threads.emplace_back([&value] { value = value_of("math_deepscaler", "\\boxed{1/2}", "0.5"); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(values, std::vector<double>(8, 1.0));
}

TEST(MathCases, NoAnswerTakesLong) {  // ver-13
  const std::string deep = std::string(100'000, '(') + std::string(100'000, ')');
  std::vector<std::string> answers = {
      "10^{10^{10}}", "100000000!", "2^{2^{2^{2^{2^{2}}}}}", deep, std::string(1 << 20, '9'), "1e999999999", "1e300"};
  answers.push_back(std::string(200'000, '{') + std::string(200'000, '}'));
  std::string fractions, sets = "\\{";
  for (int i = 0; i < 20'000; ++i) fractions += "\\frac{";
  for (int i = 0; i < 5'000; ++i) sets += "(1,2),";
  answers.push_back(fractions);
  answers.push_back(sets + "3\\}");
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& text : answers) {
    for (const std::string label : {"1", "(1,2)", "\\{1,2\\}"}) {
      EXPECT_EQ(value_of("math_deepscaler", "</think>\\boxed{" + text + "}", label), 0);
      EXPECT_EQ(value_of("math_dapo", "Answer: " + text, label), -1);
      EXPECT_EQ(value_of("math_dapo", text + " Answer: 2", label), -1);
    }
  }
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "answer \\boxed{<think Answer ";
  EXPECT_EQ(value_of("math_dapo", words, "1"), -1);
  EXPECT_EQ(value_of("math_deepscaler", words, "1"), 0);
  // 75 scorings of up to a megabyte: well under a second; minutes if anything were quadratic.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(MathCases, NothingIsEvaluated) {  // ver-14
  EXPECT_EQ(value_of("math_deepscaler", "\\boxed{__import__('os').system('echo x')}", "0"), 0);
  EXPECT_EQ(value_of("math_deepscaler", "\\boxed{30+4}", "34"), 0);
}

TEST(MathCases, OnlyTextAfterTheThoughtCounts) {  // ver-15
  for (const std::string response : {"<think>Answer: 34</think>\nAnswer: 33", "<think>so Answer: 34"}) {
    EXPECT_EQ(value_of("math_dapo", response, "34"), -1) << response;
  }
  for (const std::string response : {"<think>\\boxed{34}</think>\n\\boxed{33}", "<think>so \\boxed{34}"}) {
    EXPECT_EQ(value_of("math_deepscaler", response, "34"), 0) << response;
  }
  EXPECT_EQ(value_of("math_dapo", "<think>Answer: 33</think>\nAnswer: 34", "34"), 1);
}

TEST(MathCases, GuessesAndEchoesEarnNothing) {  // ver-16
  for (const std::string response :
       {"Answer: \\boxed{$Answer}", "Answer: 1, 2, ..., 34, 35", "Answer: 34 or 35", "Answer: 345", "Answer: 3,4",
        "Answer: 34, 35", "Answer: 3 4", "Answer:", "Answer: \\boxed{}"}) {
    EXPECT_EQ(value_of("math_dapo", response, "34"), -1) << response;
  }
  for (const std::string box : {"34 or 35", "34,35", "3 4", "345", "", "3,4", "\\{34,35\\}", "x", "34=35"}) {
    EXPECT_EQ(value_of("math_deepscaler", "\\boxed{" + box + "}", "34"), 0) << box;
  }
}

TEST(MathCases, ANoteSaysWhatWasComparedAndNeverHoldsAWholeEssay) {
  RewardSettings settings;
  settings.kind = "math_deepscaler";
  const Score score = score_of(settings, problem_with("34"), answer("\\boxed{" + std::string(3000, 'x') + "}"));
  EXPECT_NE(score.note.find("expected \"34\""), std::string::npos);
  EXPECT_LT(score.note.size(), 300U);
  EXPECT_EQ(score_of(settings, problem_with("34"), answer("\\boxed{34}")).note, "found \"34\", equals \"34\"");
}

TEST(Number, ReadsEveryFormAndNothingElse) {
  const auto same = [](const char* a, const char* b) {
    const auto x = parse_number(a), y = parse_number(b);
    return x && y && equal(*x, *y);
  };
  for (const auto& [a, b] : std::vector<std::pair<const char*, const char*>>{{"8,556", "8556"},
                                                                             {"8{,}556", "8556"},
                                                                             {"8 556", "8556"},
                                                                             {"1,234,567", "1234567"},
                                                                             {"-3", "-3.0"},
                                                                             {"+3", "3"},
                                                                             {".5", "\\frac12"},
                                                                             {"\\frac{-1}{2}", "-0.5"},
                                                                             {"-\\frac{1}{-2}", ".5"},
                                                                             {"1.2\\times 10^{3}", "1200"},
                                                                             {"1.2 \\cdot 10^{-1}", "3/25"},
                                                                             {"1e3", "1000"},
                                                                             {"1E-2", "0.01"},
                                                                             {"2 2/3", "8/3"},
                                                                             {"-2\\frac{1}{2}", "-2.5"},
                                                                             {"0", "-0.000"},
                                                                             {"5.", "5"},
                                                                             {"007", "7"},
                                                                             {"100/200", "1/2"}}) {
    EXPECT_TRUE(same(a, b)) << a << " " << b;
  }
  for (const char* text :
       {"",          "-",           ".",     "1,2",   "1,23",        "12,3456",  "1/0",   "\\frac{1}{0}",
        "\\frac{1}", "1e",          "1e301", "2^3",   "x",           "1 2",      "1.2.3", "--1",
        "1/2/3",     "1 -\\frac12", "0x10",  "1e3.5", "\\frac{1}{2", "3\\times4"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
  // Beyond 2^53 a double cannot tell these apart.
  EXPECT_FALSE(same("12345678901234567890", "12345678901234567168"));
  EXPECT_TRUE(same("12345678901234567890/12345678901234567890", "1"));
  EXPECT_FALSE(same("3", "-3"));
}

TEST(Number, ProductsCarryAcrossDigits) {
  // (10^18 - 1)^2 = 999999999999999998000000000000000001
  const Natural nines = Natural::from_digits("999999999999999999");
  EXPECT_EQ(nines.times(nines), Natural::from_digits("999999999999999998000000000000000001"));
  EXPECT_EQ(nines.plus(Natural::from_digits("1")), Natural::from_digits("1000000000000000000"));
  EXPECT_TRUE(nines.times(Natural::from_digits("000")).is_zero());
}

TEST(AnswerText, LastCharactersCountsCharactersNotBytes) {
  EXPECT_EQ(last_characters("a\xE2\x88\x92\xC3\x97", 2), "\xE2\x88\x92\xC3\x97");
  EXPECT_EQ(last_characters("abc", 10), "abc");
  EXPECT_EQ(last_characters("abc", 0), "");
}

TEST(AnswerText, EscapedBracesDoNotCloseABox) {
  EXPECT_EQ(last_boxed("x \\boxed{\\{1,2\\}} y"), "\\boxed{\\{1,2\\}}");
  EXPECT_EQ(last_boxed("x \\boxed{\\left\\{ 1 \\right.} y"), "\\boxed{\\left\\{ 1 \\right.}");
  EXPECT_EQ(last_boxed("\\boxed{1} \\boxed{2"), std::nullopt);
  EXPECT_EQ(remove_boxed("\\boxed{1} and \\boxed{2}"), std::nullopt);
}

TEST(AnswerText, DapoLooksOnlyAtTheLastThreeHundredCharacters) {
  const std::string late = "Answer: 34\n" + std::string(289, '.'), early = "Answer: 34\n" + std::string(300, '.');
  EXPECT_EQ(value_of("math_dapo", late, "34"), 1);
  EXPECT_EQ(value_of("math_dapo", early, "34"), -1);
}

TEST(Expressions, ElementsAreComparedOneByOne) {
  EXPECT_TRUE(same_expression("(0.5, \\sqrt3)", "\\left(\\frac{1}{2},\\sqrt{3}\\right)"));
  EXPECT_FALSE(same_expression("[0,1)", "(0,1)"));
  EXPECT_FALSE(same_expression("(1,2,3)", "(1,2)"));
  EXPECT_FALSE(same_expression("(2,1)", "(1,2)"));
  EXPECT_TRUE(same_expression("\\{2,1\\}", "\\{1,2\\}"));
  EXPECT_FALSE(same_expression("\\{1,1\\}", "\\{1,2\\}"));
  EXPECT_TRUE(same_expression("m+n=34", "34"));
  EXPECT_TRUE(same_expression("34", "x = 34"));
  EXPECT_FALSE(same_expression("x \\ge 34", "34"));
}

}  // namespace
}  // namespace rewards
