// Tables of replacements and a few scans. Each step is linear in the text.
#include "rewards/math_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>

#include "rewards/answer_text.h"

namespace rewards {
namespace {
using Replacement = std::pair<std::string_view, std::string_view>;

// Order matters: "an " before "a ", "\text{}" after the units that leave it empty.
constexpr auto kMinervaReplaced = std::to_array<Replacement>({{"an ", ""},
                                                              {"a ", ""},
                                                              {".$", "$"},
                                                              {"\\$", ""},
                                                              {"\\ ", ""},
                                                              {" ", ""},
                                                              {"mbox", "text"},
                                                              {",\\text{and}", ","},
                                                              {"\\text{and}", ","},
                                                              {"\\text{m}", "\\text{}"}});
constexpr auto kMinervaRemoved = std::to_array<std::string_view>(
    {"square",    "ways",        "integers",   "dollars",    "mph",        "inches",    "hours",
     "km",        "units",       "\\ldots",    "sue",        "points",     "feet",      "minutes",
     "digits",    "cents",       "degrees",    "cm",         "gm",         "pounds",    "meters",
     "meals",     "edges",       "students",   "children",   "tickets",    "multiples", "\\text{s}",
     "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}",
     "^\\circ",   "^{\\circ}",   "\\;",        ",\\!",       "{,}",        "\"",        "\\dots"});

constexpr auto kMathReplaced = std::to_array<Replacement>({{"\n", ""},
                                                           {"\\!", ""},
                                                           {"\\\\", "\\"},
                                                           {"tfrac", "frac"},
                                                           {"dfrac", "frac"},
                                                           {"\\left", ""},
                                                           {"\\right", ""},
                                                           {"^{\\circ}", ""},
                                                           {"^\\circ", ""},
                                                           {"\\$", ""},
                                                           {"\\%", ""},
                                                           {"%", ""}});

constexpr auto kDecoration = std::to_array<Replacement>({{"\\dfrac", "\\frac"},
                                                         {"\\tfrac", "\\frac"},
                                                         {"\\cfrac", "\\frac"},
                                                         {"\\left", ""},
                                                         {"\\right", ""},
                                                         {"^{\\circ}", ""},
                                                         {"^\\circ", ""},
                                                         {"\\circ", ""},
                                                         {"\\$", ""},
                                                         {"$", ""},
                                                         {"\\%", ""},
                                                         {"%", ""},
                                                         {"\\!", ""},
                                                         {"\\;", " "}});

// Unit words that may follow a number; longer ones first, so that "meters" is not cut to "s".
constexpr auto kUnitWords = std::to_array<std::string_view>(
    {"kilometers", "centimeters", "millimeters", "kilograms", "students", "children", "tickets", "dollars",
     "degrees",    "minutes",     "seconds",     "integers",  "meters",   "pounds",   "inches",  "points",
     "degree",     "radians",     "people",      "digits",    "square",   "hours",    "cents",   "units",
     "miles",      "edges",       "weeks",       "years",     "liters",   "feet",     "days",    "ways",
     "mph",        "km",          "cm",          "mm",        "kg",       "gm",       "ft",      "\\text{}"});

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string result;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    result.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  result.append(text, done);
  text = std::move(result);
}

void replace_all(std::string& text, std::span<const Replacement> table) {
  for (const auto& [from, to] : table) replace_all(text, from, to);
}

// Each "<open>inside}" becomes "inside", up to the first closing brace.
void unwrap(std::string& text, std::string_view open) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, done)) {
    const size_t inside = at + open.size(), close = text.find('}', inside);
    if (close == std::string::npos) break;
    result.append(text, done, at - done).append(text, inside, close - inside);
    done = close + 1;
  }
  result.append(text, done);
  text = std::move(result);
}

// "<command>12" becomes "<command>{1}{2}" for two arguments, "<command>1" becomes "<command>{1}" for one. An argument
// that is already in braces stays as it is; a command ("\sqrt\pi") is left alone.
void brace_arguments(std::string& text, std::string_view command, int num_arguments) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(command); at != std::string::npos; at = text.find(command, done)) {
    result.append(text, done, at + command.size() - done);
    done = at + command.size();
    for (int i = 0; i < num_arguments && done < text.size(); ++i) {
      if (text[done] == '{') {
        const size_t close = text.find('}', done);
        if (close == std::string::npos || text.find('{', done + 1) < close)
          break;  // nested: argument by argument is not safe
        result.append(text, done, close + 1 - done);
        done = close + 1;
      } else if (std::isalnum(static_cast<unsigned char>(text[done])) != 0) {
        result.append("{").append(1, text[done++]).append("}");
      } else {
        break;
      }
    }
  }
  result.append(text, done);
  text = std::move(result);
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// 1,234,567 without its commas; anything else, a list like 3,4 too, stays as it is.
std::string without_grouping(const std::string& text) {
  size_t comma = text.find(',');
  if (comma == 0 || comma == std::string::npos || comma > 3) return text;
  std::string digits = text.substr(0, comma);
  for (; comma < text.size(); comma += 4) {
    if (text[comma] != ',' || text.size() < comma + 4) return text;
    digits += text.substr(comma + 1, 3);
  }
  return all_digits(digits) ? digits : text;
}

// A single term: no sign, bracket, comma, comparison or further slash, so that a/b can be read as a fraction without
// algebra.
bool is_term(std::string_view text) {
  return !text.empty() && text.find_first_of("+-/()[]{},=<>") == std::string_view::npos;
}

std::string slash_as_fraction(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return text;
  const std::string_view top = std::string_view(text).substr(0, slash),
                         bottom = std::string_view(text).substr(slash + 1);
  if (!is_term(top) || !is_term(bottom)) return text;
  return "\\frac{" + std::string(top) + "}{" + std::string(bottom) + "}";
}

// The unit at the end of an answer: a unit word, or \text{..}, \mathrm{..}, \mbox{..} with at most a power behind it.
std::string_view without_unit(std::string_view text) {
  text = strip(text);
  for (const std::string_view power : {"^2", "^3", "^{2}", "^{3}"}) {
    const std::string_view rest = text.ends_with(power) ? strip(text.substr(0, text.size() - power.size())) : text;
    if (!rest.ends_with("}")) continue;
    for (const std::string_view open : {"\\text{", "\\mathrm{", "\\mbox{"}) {
      const size_t at = rest.rfind(open);
      // A unit follows something, and holds no group of its own.
      if (at != std::string_view::npos && at > 0 && rest.find('}', at) == rest.size() - 1)
        return strip(rest.substr(0, at));
    }
  }
  for (const std::string_view word : kUnitWords) {
    if (text.size() <= word.size() || !text.ends_with(word)) continue;
    const char before = text[text.size() - word.size() - 1];
    const bool separate = before == ' ' || before == '~' || (before >= '0' && before <= '9');
    if (separate) return strip(text.substr(0, text.size() - word.size()));
  }
  return text;
}

}  // namespace

std::string normalize_final_answer(std::string_view answer) {
  std::string text(answer.substr(answer.rfind('=') == std::string_view::npos ? 0 : answer.rfind('=') + 1));
  replace_all(text, kMinervaReplaced);
  for (const std::string_view removed : kMinervaRemoved) replace_all(text, removed, "");
  if (const size_t first = text.find('$'); first != std::string::npos) {
    if (const size_t second = text.find('$', first + 1); second != std::string::npos) {
      text = text.substr(first + 1, second - first - 1);
    }
  }
  for (const std::string_view open : {"\\text{", "\\textbf{", "\\overline{"}) unwrap(text, open);
  if (const size_t open = text.find("\\boxed{"); open != std::string::npos) {
    if (const size_t close = text.rfind('}'); close != std::string::npos && close > open) {
      text = text.substr(0, open) + text.substr(open + 7, close - open - 7) + text.substr(close + 1);
    }
  }
  brace_arguments(text, "frac", 2);
  brace_arguments(text, "sqrt", 1);
  std::erase(text, '$');
  text = without_grouping(text);
  return std::string(strip(text));
}

std::string strip_string(std::string_view answer) {
  std::string text(answer);
  replace_all(text, kMathReplaced);
  if (const size_t unit = text.find("\\text{ "); unit != std::string::npos) text.resize(unit);
  replace_all(text, " .", " 0.");
  replace_all(text, "{.", "{0.");
  text = std::string(strip(text));
  if (text.starts_with(".")) text.insert(0, "0");
  constexpr size_t kShortName = 2;
  const size_t equals = text.find('=');
  if (equals != std::string::npos && text.find('=', equals + 1) == std::string::npos &&
      strip(std::string_view(text).substr(0, equals)).size() <= kShortName) {
    text.erase(0, equals + 1);
  }
  brace_arguments(text, "\\sqrt", 1);
  std::erase(text, ' ');
  brace_arguments(text, "\\frac", 2);
  if (text == "0.5") return "\\frac{1}{2}";
  const size_t slash = text.find('/');
  if (slash != std::string::npos && all_digits(std::string_view(text).substr(0, slash)) &&
      all_digits(std::string_view(text).substr(slash + 1))) {
    return slash_as_fraction(text);
  }
  return text;
}

std::string normalize_expression(std::string_view answer) {
  std::string text = bare_number_text(answer);
  for (const std::string_view open : {"\\text{", "\\textbf{", "\\mathrm{", "\\mbox{"}) unwrap(text, open);
  std::erase(text, ' ');
  replace_all(text, "{,}", ",");
  text = without_grouping(text);
  brace_arguments(text, "\\sqrt", 1);
  brace_arguments(text, "\\frac", 2);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return slash_as_fraction(text);
}

std::string bare_number_text(std::string_view answer) {
  std::string text(strip(answer));
  replace_all(text, kDecoration);
  for (std::string_view shorter = without_unit(text); shorter.size() != text.size(); shorter = without_unit(text)) {
    text = std::string(shorter);
  }
  if (text.size() > 1 && text.ends_with(".")) text.pop_back();
  return std::string(strip(text));
}

}  // namespace rewards
