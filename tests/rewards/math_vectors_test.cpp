// The functions of the public scorers against the vectors of their own tests (THUDM/slime and radixark/miles).
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "rewards/answer_text.h"
#include "rewards/golden.h"
#include "rewards/math.h"
#include "rewards/math_text.h"

namespace rewards {
namespace {
using base::Json;

std::string text(const Json& json) {
  return json.is_null() ? "" : json.is_string() ? json.get<std::string>() : json.dump();
}

std::optional<std::string> optional_text(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<std::string>());
}

std::optional<std::string> owned(std::optional<std::string_view> view) {
  return view ? std::optional<std::string>(*view) : std::nullopt;
}

std::optional<std::string> extract_answer(std::string_view response) {
  const auto box = last_boxed(response);
  return box ? owned(remove_boxed(*box)) : std::nullopt;
}

void check_compute_score(const Json& a) {
  RewardSettings settings;
  settings.strict_box = a["strict_box"];
  const Score score = math_dapo(settings, problem_with(text(a["gt"])), answer(a["solution"]));
  EXPECT_EQ(score.value, a["expected_score"].get<double>());
  EXPECT_EQ(score.value > 0, a["expected_acc"].get<bool>());
}

void check_strict_box(const Json& a) {
  const Verdict verdict = is_correct_strict_box(text(a["pred"]), text(a["gt"]));
  EXPECT_EQ(verdict.correct ? 1 : -1, a["expected_score"].get<int>());
  EXPECT_EQ(verdict.predicted, a["expected_pred"].get<std::string>());
}

void check_minerva(const Json& a) {
  const Verdict verdict = is_correct_minerva(text(a["solution"]), text(a["gt"]), a["gt_need_extract"]);
  EXPECT_EQ(verdict.correct, a["expected_correct"].get<bool>());
}

void check_deepscaler(const Json& a) {
  const Score score = math_deepscaler({}, problem_with(text(a["label"])), answer(a["response"]));
  EXPECT_EQ(score.value, a["expected"].get<double>());
}

const std::map<std::string, std::function<void(const Json&)>> kChecks = {
    {"last_boxed_only_string",
     [](const Json& a) { EXPECT_EQ(owned(last_boxed(text(a["input_str"]))), optional_text(a["expected"])); }},
    {"remove_boxed",
     [](const Json& a) { EXPECT_EQ(owned(remove_boxed(text(a["input_str"]))), optional_text(a["expected"])); }},
    {"remove_boxed_valid",
     [](const Json& a) { EXPECT_EQ(owned(remove_boxed(text(a["input_str"]))), optional_text(a["expected"])); }},
    {"extract_answer",
     [](const Json& a) { EXPECT_EQ(extract_answer(text(a["input_str"])), optional_text(a["expected"])); }},
    {"normalize", [](const Json& a) { EXPECT_EQ(normalize_expression(text(a["input_str"])), text(a["expected"])); }},
    {"grade_answer_mathd",
     [](const Json& a) {
       EXPECT_EQ(same_expression(text(a["given"]), text(a["ground_truth"])), a["expected"].get<bool>());
     }},
    {"grade_answer_sympy",
     [](const Json& a) {
       EXPECT_EQ(same_expression(text(a["given"]), text(a["ground_truth"])), a["expected"].get<bool>());
     }},
    {"grade_answer_verl",
     [](const Json& a) {
       EXPECT_EQ(grade_boxed(text(a["solution"]), text(a["ground_truth"])), a["expected"].get<bool>());
     }},
    {"grade_answer_mathd_canonical_equivalences",
     [](const Json& a) { EXPECT_TRUE(same_expression(text(a["given"]), text(a["gt"]))); }},
    {"strip_string_canonical_substitutions",
     [](const Json& a) { EXPECT_EQ(strip_string(text(a["raw"])), text(a["expected"])); }},
    {"normalize_final_answer",
     [](const Json& a) { EXPECT_EQ(normalize_final_answer(text(a["input_str"])), text(a["expected"])); }},
    {"normalize_final_answer_canonical_substitutions",
     [](const Json& a) { EXPECT_EQ(normalize_final_answer(text(a["raw"])), text(a["expected"])); }},
    {"is_correct_minerva", check_minerva},
    {"is_correct_strict_box", check_strict_box},
    {"compute_score", check_compute_score},
    {"get_deepscaler_rule_based_reward", check_deepscaler},
};

TEST(MathVectors, EveryPublicVectorOfEveryFunctionHolds) {
  std::map<std::string, int> seen;
  for (const Json& line : golden_lines("function_vectors.jsonl")) {
    const std::string function = line["function"];
    SCOPED_TRACE(line["id"].get<std::string>() + " " + line["args"].dump());
    ASSERT_TRUE(kChecks.contains(function)) << function;
    kChecks.at(function)(line["args"]);
    ++seen[function];
  }
  EXPECT_EQ(seen.size(), kChecks.size());
  int total = 0;
  for (const auto& [function, count] : seen) total += count;
  EXPECT_EQ(total, 74);
}

TEST(MathVectors, EdgeCasesAreScoredByMathematics) {
  int count = 0;
  for (const Json& line : golden_lines("edge_cases.jsonl")) {
    SCOPED_TRACE(line.dump());
    const data::Problem problem = problem_with(line["label"]);
    const data::Sample sample = answer(line["response"]);
    EXPECT_EQ(math_dapo({}, problem, sample).value, line["dapo"].get<bool>() ? 1 : -1);
    EXPECT_EQ(math_deepscaler({}, problem, sample).value, line["deepscaler"].get<bool>() ? 1 : 0);
    ++count;
  }
  EXPECT_EQ(count, 71);
}

}  // namespace
}  // namespace rewards
