// Scans by hand: a response may have a megabyte, and a regular expression with backtracking would be at its mercy.
#include "rewards/answer_text.h"

#include <array>
#include <utility>

namespace rewards {
namespace {
constexpr std::string_view kSpaces = " \t\r\n\f\v";
constexpr std::string_view kOpenThought = "<think>", kCloseThought = "</think>", kResponseMark = "###Response";
constexpr std::string_view kWideBar = "\xEF\xBD\x9C", kWideColon = "\xEF\xBC\x9A";  // U+FF5C, U+FF1A

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Length of a token like <|end|> that ends the text, or 0. Names are short: a longer run is text.
size_t control_token_at_end(std::string_view text) {
  constexpr size_t kLongest = 64;
  for (const std::string_view bar : {std::string_view("|"), kWideBar}) {
    const std::string close = std::string(bar) + ">", open = "<" + std::string(bar);
    if (!text.ends_with(close)) continue;
    const size_t at = text.rfind(open, text.size() - close.size());
    if (at == std::string_view::npos || text.size() - at > kLongest) continue;
    const std::string_view name = text.substr(at + open.size(), text.size() - close.size() - at - open.size());
    if (!name.empty() && name.find_first_of("<>\n ") == std::string_view::npos) return text.size() - at;
  }
  return 0;
}

// The end of the group whose opening brace is at `open` (just after its closing brace), or npos.
size_t end_of_group(std::string_view text, size_t open) {
  int64_t depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
    if (c != lower[i]) return false;
  }
  return true;
}

// Where the text after "Answer:" begins, for the last one; npos if there is none.
size_t after_last_answer_mark(std::string_view text) {
  constexpr std::string_view kWord = "answer";
  for (size_t i = text.size(); i-- > 0;) {
    if ((text[i] != 'a' && text[i] != 'A') || !equals_ignoring_case(text.substr(i, kWord.size()), kWord)) continue;
    const size_t colon = text.find_first_not_of(kSpaces, i + kWord.size());
    if (colon == std::string_view::npos) continue;
    if (text[colon] == ':') return colon + 1;
    if (text.substr(colon).starts_with(kWideColon)) return colon + kWideColon.size();
  }
  return std::string_view::npos;
}

constexpr auto kMathematics = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"\xE2\x88\x92", "-"},             // U+2212 minus
    {"\xE2\x80\x93", "-"},             // U+2013 en dash
    {"\xC2\xA0", " "},                 // U+00A0 no-break space
    {"\xE2\x80\x89", " "},             // U+2009 thin space
    {"\xE2\x80\xAF", " "},             // U+202F narrow no-break space
    {"\xE3\x80\x80", " "},             // U+3000 ideographic space
    {"\xC2\xB0", "^\\circ"},           // U+00B0 degree
    {"\xC3\x97", "\\times "},          // U+00D7 times
    {"\xCF\x80", "\\pi "},             // U+03C0 pi
    {"\xE2\x88\x9E", "\\infty "},      // U+221E infinity
    {"\xC2\xBC", "\\frac{1}{4}"},      // U+00BC
    {"\xC2\xBD", "\\frac{1}{2}"},      // U+00BD
    {"\xC2\xBE", "\\frac{3}{4}"},      // U+00BE
    {"\xE2\x85\x93", "\\frac{1}{3}"},  // U+2153
    {"\xE2\x85\x94", "\\frac{2}{3}"},  // U+2154
    {"\xE2\x85\x95", "\\frac{1}{5}"},  // U+2155
    {"\xE2\x85\x96", "\\frac{2}{5}"},  // U+2156
    {"\xE2\x85\x97", "\\frac{3}{5}"},  // U+2157
    {"\xE2\x85\x98", "\\frac{4}{5}"},  // U+2158
    {"\xE2\x85\x99", "\\frac{1}{6}"},  // U+2159
    {"\xE2\x85\x9A", "\\frac{5}{6}"},  // U+215A
    {"\xE2\x85\x9B", "\\frac{1}{8}"},  // U+215B
    {"\xE2\x85\x9C", "\\frac{3}{8}"},  // U+215C
    {"\xE2\x85\x9D", "\\frac{5}{8}"},  // U+215D
    {"\xE2\x85\x9E", "\\frac{7}{8}"},  // U+215E
    {"\xE2\x88\x95", "/"},             // U+2215 division slash
});

// U+FF01..U+FF5E are ASCII 0x21..0x7E in full width: EF BC 81..BF, EF BD 80..9E. 0 if the text does not start with one.
char full_width(std::string_view text) {
  if (text.size() < 3 || text[0] != '\xEF') return 0;
  const auto second = static_cast<unsigned char>(text[1]), third = static_cast<unsigned char>(text[2]);
  if (second == 0xBC && third >= 0x81 && third <= 0xBF) return static_cast<char>(third - 0x81 + 0x21);
  if (second == 0xBD && third >= 0x80 && third <= 0x9E) return static_cast<char>(third - 0x80 + 0x60);
  return 0;
}

}  // namespace

std::string_view strip(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::string_view drop_control_tokens(std::string_view text) {
  for (;;) {
    text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
    const size_t length = control_token_at_end(text);
    if (length == 0) return text;
    text.remove_suffix(length);
  }
}

std::string_view last_characters(std::string_view text, int64_t characters) {
  size_t at = text.size();
  while (at > 0 && characters > 0) {
    if (!is_continuation(text[--at])) --characters;
  }
  return text.substr(at);
}

FinalText final_text(std::string_view prompt, std::string_view response) {
  FinalText result{response};
  const size_t closed = response.rfind(kCloseThought), marked = response.rfind(kResponseMark);
  if (closed != std::string_view::npos) {
    result = {response.substr(closed + kCloseThought.size()), true};
  } else if (marked != std::string_view::npos) {
    result = {response.substr(marked + kResponseMark.size()), true};
  } else {
    result.open_thought = strip(prompt).ends_with(kOpenThought);
  }
  if (result.text.find(kOpenThought) != std::string_view::npos) result.open_thought = true;
  return result;
}

std::string shown(std::string_view text) {
  constexpr size_t kMaxShown = 120;
  if (text.size() <= kMaxShown) return std::string(text);
  size_t end = kMaxShown;
  while (end > 0 && is_continuation(text[end])) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::optional<std::string_view> last_boxed(std::string_view text) {
  for (const std::string_view mark : {std::string_view("\\boxed{"), std::string_view("\\fbox{")}) {
    const size_t at = text.rfind(mark);
    if (at == std::string_view::npos) continue;
    const size_t end = end_of_group(text, at + mark.size() - 1);
    if (end == std::string_view::npos) return std::nullopt;
    return text.substr(at, end - at);
  }
  return std::nullopt;
}

std::optional<std::string_view> remove_boxed(std::string_view text) {
  for (const std::string_view mark : {std::string_view("\\boxed{"), std::string_view("\\fbox{")}) {
    if (!text.starts_with(mark) || end_of_group(text, mark.size() - 1) != text.size()) continue;
    return text.substr(mark.size(), text.size() - mark.size() - 1);
  }
  return std::nullopt;
}

std::optional<std::string_view> answer_line(std::string_view text) {
  const size_t begin = after_last_answer_mark(text);
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view line = text.substr(begin);
  const size_t first = line.find_first_not_of(kSpaces);
  line.remove_prefix(first == std::string_view::npos ? line.size() : first);
  line = line.substr(0, line.find('\n'));
  constexpr std::string_view kEmphasis = "*` \t\r";
  const size_t from = line.find_first_not_of(kEmphasis);
  if (from == std::string_view::npos) return std::string_view();
  return line.substr(from, line.find_last_not_of(kEmphasis) - from + 1);
}

std::string plain_mathematics(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    if (static_cast<unsigned char>(text[0]) < 0x80) {
      result += text[0];
      text.remove_prefix(1);
    } else if (const char ascii = full_width(text); ascii != 0) {
      result += ascii;
      text.remove_prefix(3);
    } else {
      std::string_view from = text.substr(0, 1), to = from;
      for (const auto& [form, plain] : kMathematics) {
        if (text.starts_with(form)) from = form, to = plain;
      }
      result += to;
      text.remove_prefix(from.size());
    }
  }
  return result;
}

}  // namespace rewards
