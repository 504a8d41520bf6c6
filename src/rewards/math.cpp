// Grading on top of math_text.h (normal forms) and number.h (exact values).
#include "rewards/math.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "rewards/answer_text.h"
#include "rewards/math_text.h"
#include "rewards/number.h"

namespace rewards {
namespace {
constexpr int64_t kDapoTail = 300, kStrictBoxTail = 100;  // characters
constexpr size_t kMaxAnswer = 4000;                       // bytes; nobody's final answer is longer
constexpr int kMaxNesting = 8;
constexpr size_t kMaxElements = 64;

Score wrong_without_answer(double value, const std::string& why) { return {value, why, Outcome::no_answer}; }

Score judged(bool correct, double right, double wrong, std::string_view found, std::string_view label) {
  return {correct ? right : wrong,
          fmt::format("found \"{}\", {} \"{}\"", shown(found), correct ? "equals" : "expected", shown(label))};
}

std::optional<bool> same_number(std::string_view a, std::string_view b) {
  const auto x = parse_number(a), y = parse_number(b);
  if (!x || !y) return std::nullopt;
  return equal(*x, *y);
}

// Normal forms lose spaces, so that "3 4" would become 34. Numbers in groups ("8 556") never come here: they are
// compared by value.
bool has_split_digits(std::string_view text) {
  bool after_digit = false, spaced = false;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && after_digit && spaced) return true;
    if (c == ' ' && after_digit) {
      spaced = true;
    } else {
      after_digit = digit;
      spaced = false;
    }
  }
  return false;
}

bool lost_spaces(std::string_view a, std::string_view b) {
  return (has_split_digits(a) || has_split_digits(b)) && a != b;
}

std::string_view after_last_equals(std::string_view text) {
  const size_t at = text.rfind('=');
  return at == std::string_view::npos ? text : text.substr(at + 1);
}

// Number at the end of a DAPO answer: units and dollars are gone in either form, but only here "2 2/3" is still two and
// two thirds.
std::string dapo_number_text(std::string_view text) {
  std::string bare = bare_number_text(after_last_equals(text));
  if (const auto inside = remove_boxed(bare)) bare = bare_number_text(*inside);
  return bare;
}

// --- tuples, intervals, sets

struct Elements {
  std::string open, close;
  std::vector<std::string_view> parts;
};

size_t closing_length(std::string_view text) { return text.ends_with("\\}") ? 2 : 1; }

std::optional<Elements> split_elements(std::string_view text) {
  Elements result;
  for (const std::string_view open : {"(", "[", "\\{"}) {
    if (text.starts_with(open)) result.open = open;
  }
  if (result.open.empty() || text.size() < 2) return std::nullopt;
  const size_t tail = closing_length(text);
  result.close = text.substr(text.size() - tail);
  if (result.close != ")" && result.close != "]" && result.close != "\\}") return std::nullopt;
  if (text.size() < result.open.size() + tail) return std::nullopt;
  text = text.substr(result.open.size(), text.size() - result.open.size() - tail);
  int64_t depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      result.parts.push_back(strip(text.substr(begin, i - begin)));
      begin = i + 1;
    } else if (text[i] == '(' || text[i] == '[' || text[i] == '{') {
      ++depth;
    } else if (text[i] == ')' || text[i] == ']' || text[i] == '}') {
      if (--depth < 0) return std::nullopt;
    }
  }
  if (result.parts.size() < 2 || result.parts.size() > kMaxElements) return std::nullopt;
  return result;
}

bool same_at_depth(std::string_view answer, std::string_view label, int depth);

bool same_elements(const Elements& a, const Elements& b, int depth) {
  if (a.open != b.open || a.close != b.close || a.parts.size() != b.parts.size()) return false;
  const auto same = [&](std::string_view x, std::string_view y) { return same_at_depth(x, y, depth + 1); };
  if (a.open == "\\{") return std::is_permutation(a.parts.begin(), a.parts.end(), b.parts.begin(), same);
  return std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), same);
}

// "name = value" when it has one "=" and nothing that would make it a condition.
std::optional<std::string_view> right_hand_side(std::string_view text) {
  const size_t at = text.find('=');
  if (at == std::string_view::npos || text.find('=', at + 1) != std::string_view::npos) return std::nullopt;
  if (at == 0 || text.find_first_of("<>") != std::string_view::npos || text[at - 1] == '\\') return std::nullopt;
  const std::string_view value = strip(text.substr(at + 1));
  if (value.empty()) return std::nullopt;
  return value;
}

bool same_at_depth(std::string_view answer, std::string_view label, int depth) {
  if (depth > kMaxNesting || answer.empty() || label.empty()) return false;
  const std::string bare_answer = bare_number_text(answer), bare_label = bare_number_text(label);
  if (const auto same = same_number(bare_answer, bare_label)) return *same;
  if (lost_spaces(bare_answer, bare_label)) return false;
  if (strip_string(answer) == strip_string(label)) return true;
  const std::string normal_answer = normalize_expression(answer), normal_label = normalize_expression(label);
  if (!normal_answer.empty() && normal_answer == normal_label) return true;
  const auto answer_parts = split_elements(bare_answer), label_parts = split_elements(bare_label);
  if (answer_parts && label_parts) return same_elements(*answer_parts, *label_parts, depth);
  const auto answer_value = right_hand_side(answer), label_value = right_hand_side(label);
  if (answer_value && !label_value) return same_at_depth(*answer_value, label, depth + 1);
  if (label_value && !answer_value) return same_at_depth(answer, *label_value, depth + 1);
  return false;
}

// What of a sample may be graded; a score when nothing may.
std::optional<Score> refuse(const RewardSettings& settings, const FinalText& final, const data::Sample& sample,
                            double wrong) {
  if (settings.require_stop && sample.finish != data::FinishReason::stop) {
    return wrong_without_answer(wrong, "the answer was cut off: " + data::to_string(sample.finish));
  }
  if (final.open_thought) return wrong_without_answer(wrong, "the thought was not closed");
  if (settings.require_thought && !final.has_marker) return wrong_without_answer(wrong, "no </think> in the answer");
  return std::nullopt;
}

}  // namespace

bool same_final_answer(std::string_view answer, std::string_view label) {
  if (answer.size() > kMaxAnswer || label.size() > kMaxAnswer) return false;
  const std::string plain_answer = plain_mathematics(answer), plain_label = plain_mathematics(label);
  const std::string bare_answer = dapo_number_text(plain_answer), bare_label = dapo_number_text(plain_label);
  if (const auto same = same_number(bare_answer, bare_label)) return *same;
  if (lost_spaces(bare_answer, bare_label)) return false;
  const std::string a = normalize_final_answer(plain_answer), b = normalize_final_answer(plain_label);
  if (const auto same = same_number(a, b)) return *same;
  return !a.empty() && a == b;
}

Verdict is_correct_minerva(std::string_view solution, std::string_view ground_truth, bool extract_truth) {
  Verdict verdict;
  if (extract_truth) {
    const auto box = last_boxed(ground_truth);
    const auto inside = box ? remove_boxed(*box) : std::nullopt;
    if (!inside) return verdict;
    ground_truth = *inside;
  }
  const auto line = answer_line(solution);
  if (!line || line->size() > kMaxAnswer) return verdict;
  verdict.found = true;
  verdict.predicted = normalize_final_answer(plain_mathematics(*line));
  verdict.correct = same_final_answer(*line, ground_truth);
  return verdict;
}

Verdict is_correct_strict_box(std::string_view solution, std::string_view ground_truth) {
  const auto box = last_boxed(last_characters(solution, kStrictBoxTail));
  const auto inside = box ? remove_boxed(*box) : std::nullopt;
  if (!inside) return {};
  return {!inside->empty() && *inside == strip(ground_truth), std::string(*inside), true};
}

Score math_dapo(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample) {
  constexpr double kRight = 1, kWrong = -1;
  const FinalText final = final_text(problem.prompt, drop_control_tokens(sample.response));
  if (const auto refused = refuse(settings, final, sample, kWrong)) return *refused;
  const std::string_view tail = last_characters(final.text, kDapoTail);
  const Verdict verdict =
      settings.strict_box ? is_correct_strict_box(tail, problem.label) : is_correct_minerva(tail, problem.label);
  if (!verdict.found) {
    return wrong_without_answer(kWrong, settings.strict_box ? "no \\boxed{} in the last 100 characters"
                                                            : "no \"Answer:\" line in the last 300 characters");
  }
  return judged(verdict.correct, kRight, kWrong, verdict.predicted, problem.label);
}

bool same_expression(std::string_view answer, std::string_view label) {
  if (answer.size() > kMaxAnswer || label.size() > kMaxAnswer) return false;
  const std::string plain_answer = plain_mathematics(answer), plain_label = plain_mathematics(label);
  return same_at_depth(strip(plain_answer), strip(plain_label), 0);
}

bool grade_boxed(std::string_view solution, std::string_view label) {
  const auto box = last_boxed(solution), label_box = last_boxed(label);
  if (!box) return false;
  return same_expression(*remove_boxed(*box), label_box ? *remove_boxed(*label_box) : label);
}

Score math_deepscaler(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample) {
  constexpr double kRight = 1, kWrong = 0;
  const FinalText final = final_text(problem.prompt, drop_control_tokens(sample.response));
  if (const auto refused = refuse(settings, final, sample, kWrong)) return *refused;
  const auto box = last_boxed(final.text);
  if (!box) return wrong_without_answer(kWrong, "no complete \\boxed{} in the answer");
  return judged(grade_boxed(final.text, problem.label), kRight, kWrong, *remove_boxed(*box), problem.label);
}

bool is_gradable_label(std::string_view label) {
  std::string text(strip(label));
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (text.starts_with("+") || text.starts_with("-")) text.erase(0, 1);
  // A number that no double holds is a slip of the file, not an answer: 1e999.
  const bool number_like =
      text.find_first_not_of("0123456789.e+") == std::string::npos && text.find_first_of("0123456789") == 0;
  const bool overflows = number_like && text.find('e') != std::string::npos && !parse_number(text);
  return !text.empty() && text != "nan" && text != "inf" && text != "infinity" && !overflows;
}

}  // namespace rewards
