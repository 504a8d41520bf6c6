// From Oniguruma's Ruby syntax to PCRE2. Only what is known to mean the same in both passes: the rest is refused.
#include <string>
#include <string_view>

#include "base/error.h"
#include "data/split_regex.h"

namespace data {
namespace {

// Unicode White_Space, which is what \s means to Oniguruma. PCRE2's own \s also takes U+180E.
constexpr std::string_view kSpaces =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
// Oniguruma's \w: letters, marks, decimal digits, connectors. PCRE2's has all numbers, no marks and only '_'.
constexpr std::string_view kWord = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";

class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      switch (in_[at_]) {
        case '\\':
          escape(/*in_class=*/false);
          break;
        case '[':
          char_class();
          break;
        case '(':
          group();
          break;
        case '{':
          braces();
          break;
        default:
          copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    base::fail(
        base::Code::invalid_argument,
        "{}: the pattern uses {} at byte {} of {}, which is not supported (Oniguruma and PCRE2 read it differently)",
        where_, what, at_, in_);
  }

  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  void copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  void replace(size_t count, std::string_view text) {
    out_ += text;
    at_ += count;
  }

  void escape(bool in_class) {
    if (at_ + 1 >= in_.size()) refuse("a backslash at the end");
    const char c = in_[at_ + 1];
    const auto set = [&](std::string_view members, bool negated) {
      if (in_class && negated) refuse("a negated set inside []");
      if (in_class) return replace(2, members);
      replace(2, std::string(negated ? "[^" : "[") + std::string(members) + "]");
    };
    switch (c) {
      case 's':
      case 'S':
        return set(kSpaces, c == 'S');
      case 'w':
      case 'W':
        return set(kWord, c == 'W');
      case 'x':
      case 'p':
      case 'P':
        return braced_escape();
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return copy(2);
      default:
        break;
    }
    const bool word_like =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c & 0x80) != 0;
    if (word_like) refuse(std::string("the escape \\") + c);
    copy(2);
  }

  // \p{..}, \P{..}, \x{..}
  void braced_escape() {
    const size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string_view::npos) refuse("\\p or \\x without {}");
    copy(end + 1 - at_);
  }

  void char_class() {
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) refuse("a class that begins with ]");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '[') refuse("a set inside a set");
      if (next_is("&&")) refuse("an intersection of sets");
      if (in_[at_] == '\\') {
        escape(/*in_class=*/true);
      } else {
        copy(1);
      }
    }
    if (at_ == in_.size()) refuse("a class without ]");
    copy(1);
  }

  void group() {
    if (!next_is("(?")) {
      if (next_is("(*")) refuse("a verb");
      return copy(1);
    }
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"}) {
      if (next_is(known)) return copy(known.size());
    }
    refuse("a group of another kind");
  }

  void braces() {
    if (next_is("{,")) refuse("the quantifier {,n}");
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) refuse("a { without }");
    if (end + 1 < in_.size() && in_[end + 1] == '+') refuse("the quantifier {n,m}+");
    copy(end + 1 - at_);
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace data
