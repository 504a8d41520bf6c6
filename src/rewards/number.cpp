// A reader of one number, left to right, without recursion.
#include "rewards/number.h"

#include <algorithm>
#include <string>

#include "rewards/answer_text.h"

namespace rewards {
namespace {
constexpr uint64_t kBase = 1'000'000'000;
constexpr size_t kMaxText = 1000, kMaxDigits = 300;
constexpr int64_t kMaxExponent = 300;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Natural one() { return Natural::from_digits("1"); }

class NumberReader {
 public:
  explicit NumberReader(std::string_view text) : text_(text) {}

  std::optional<Rational> read() {
    skip_spaces();
    const bool negative = accept("-");
    if (!negative) accept("+");
    skip_spaces();
    std::optional<Rational> value = magnitude();
    skip_spaces();
    if (!value || !text_.empty()) return std::nullopt;
    value->negative = value->negative != negative;
    return value;
  }

 private:
  std::string_view text_;

  bool accept(std::string_view token) {
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  bool skip_spaces() {
    const std::string_view before = text_;
    while (accept(" ") || accept("\t") || accept("~") || accept("\\,") || accept("\\ ")) {
    }
    return text_.size() != before.size();
  }
  bool at_digit() const { return !text_.empty() && is_digit(text_[0]); }

  std::string digits() {
    size_t n = 0;
    while (n < text_.size() && is_digit(text_[n])) ++n;
    std::string result(text_.substr(0, n));
    text_.remove_prefix(n);
    return result;
  }

  // Digits in groups of three after the first: 8,556 or 8{,}556 or 8 556. Other commas and spaces are left alone.
  std::string grouped_digits() {
    std::string result = digits();
    if (result.empty() || result.size() > 3) return result;
    for (;;) {
      const std::string_view before = text_;
      if (!accept("{,}") && !accept(",\\!") && !accept(",") && !accept("\\,") && !accept(" ")) return result;
      const std::string group = digits();
      const bool followed_by_fraction = text_.starts_with("/");  // 1 234/5 is a mixed number, not 1234/5
      if (group.size() != 3 || followed_by_fraction) {
        text_ = before;
        return result;
      }
      result += group;
    }
  }

  std::optional<Rational> magnitude() {
    if (text_.starts_with("\\frac")) return tex_fraction();
    bool plain_integer = at_digit();
    std::string whole = grouped_digits(), part;
    if (accept(".")) {
      plain_integer = false;
      part = digits();
    }
    if ((whole.empty() && part.empty()) || whole.size() + part.size() > kMaxDigits) return std::nullopt;
    if (plain_integer) {
      if (const auto fraction = fraction_after(whole)) return fraction;
    }
    const std::optional<int64_t> power = exponent();
    if (!power) return std::nullopt;
    return scaled(whole + part, *power - static_cast<int64_t>(part.size()));
  }

  // After an integer: "/3", or the fraction of a mixed number. nullopt, with nothing read, if there is neither.
  std::optional<Rational> fraction_after(const std::string& whole) {
    const std::string_view before = text_;
    if (accept("/")) {
      if (const auto fraction = over(Natural::from_digits(whole), digits())) return fraction;
    } else {
      const bool spaced = skip_spaces();
      std::optional<Rational> fraction;
      if (text_.starts_with("\\frac")) {
        fraction = tex_fraction();
      } else if (spaced && at_digit()) {
        const std::string top = digits();
        if (accept("/")) fraction = over(Natural::from_digits(top), digits());
      }
      if (fraction && !fraction->negative) {
        const Natural total = Natural::from_digits(whole).times(fraction->denominator).plus(fraction->numerator);
        return Rational{false, total, fraction->denominator};
      }
    }
    text_ = before;
    return std::nullopt;
  }

  static std::optional<Rational> over(Natural top, std::string_view bottom) {
    const Natural denominator = Natural::from_digits(bottom);
    if (denominator.is_zero() || bottom.size() > kMaxDigits) return std::nullopt;
    return Rational{false, std::move(top), denominator};
  }

  // \frac{1}{2}, \frac12, \frac1{2}: integers, the upper one perhaps negative.
  std::optional<Rational> tex_fraction() {
    accept("\\frac");
    skip_spaces();
    bool negative = false;
    const std::string top = tex_argument(&negative);
    skip_spaces();
    bool lower_negative = false;
    const std::string bottom = tex_argument(&lower_negative);
    if (top.empty() || top.size() > kMaxDigits) return std::nullopt;
    auto result = over(Natural::from_digits(top), bottom);
    if (result) result->negative = negative != lower_negative;
    return result;
  }
  std::string tex_argument(bool* negative) {
    if (!accept("{")) {
      if (!at_digit()) return {};
      std::string single(text_.substr(0, 1));
      text_.remove_prefix(1);
      return single;
    }
    skip_spaces();
    *negative = accept("-");
    std::string result = grouped_digits();
    skip_spaces();
    return accept("}") ? result : std::string();
  }

  // e3, \times 10^{3}, \cdot 10^3, *10^3; 0 if there is none. nullopt if there is one that is too large or broken.
  std::optional<int64_t> exponent() {
    const std::string_view before = text_;
    bool braced = false;
    if (!accept("e") && !accept("E")) {
      skip_spaces();
      if (!accept("\\times") && !accept("\\cdot") && !accept("*")) {
        text_ = before;
        return 0;
      }
      skip_spaces();
      if (!accept("10^")) return std::nullopt;
      braced = accept("{");
    }
    const bool negative = accept("-");
    if (!negative) accept("+");
    const std::string power = digits();
    if (power.empty() || power.size() > 4 || (braced && !accept("}"))) return std::nullopt;
    const int64_t value = std::stoll(power);
    if (value > kMaxExponent) return std::nullopt;
    return negative ? -value : value;
  }

  static Rational scaled(const std::string& all_digits, int64_t power) {
    const std::string zeros(static_cast<size_t>(power < 0 ? -power : power), '0');
    if (power >= 0) return {false, Natural::from_digits(all_digits + zeros), one()};
    return {false, Natural::from_digits(all_digits), Natural::from_digits("1" + zeros)};
  }
};

}  // namespace

Natural Natural::from_digits(std::string_view decimal_digits) {
  Natural result;
  for (size_t end = decimal_digits.size(); end > 0;) {
    const size_t begin = end >= 9 ? end - 9 : 0;
    uint32_t digit = 0;
    for (size_t i = begin; i < end; ++i) digit = digit * 10 + static_cast<uint32_t>(decimal_digits[i] - '0');
    result.digits_.push_back(digit);
    end = begin;
  }
  result.trim();
  return result;
}

Natural Natural::times(const Natural& other) const {
  Natural result;
  result.digits_.assign(digits_.size() + other.digits_.size(), 0);
  for (size_t i = 0; i < digits_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < other.digits_.size() || carry != 0; ++j) {
      const uint64_t product = j < other.digits_.size() ? uint64_t{digits_[i]} * other.digits_[j] : 0;
      const uint64_t sum = result.digits_[i + j] + product + carry;
      result.digits_[i + j] = static_cast<uint32_t>(sum % kBase);
      carry = sum / kBase;
    }
  }
  result.trim();
  return result;
}

Natural Natural::plus(const Natural& other) const {
  Natural result;
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(digits_.size(), other.digits_.size()) || carry != 0; ++i) {
    const uint64_t sum =
        carry + (i < digits_.size() ? digits_[i] : 0) + (i < other.digits_.size() ? other.digits_[i] : 0);
    result.digits_.push_back(static_cast<uint32_t>(sum % kBase));
    carry = sum / kBase;
  }
  return result;
}

void Natural::trim() {
  while (!digits_.empty() && digits_.back() == 0) digits_.pop_back();
}

bool equal(const Rational& a, const Rational& b) {
  if (a.numerator.is_zero() || b.numerator.is_zero()) return a.numerator.is_zero() && b.numerator.is_zero();
  return a.negative == b.negative && a.numerator.times(b.denominator) == b.numerator.times(a.denominator);
}

std::optional<Rational> parse_number(std::string_view text) {
  text = strip(text);
  if (text.empty() || text.size() > kMaxText) return std::nullopt;
  return NumberReader(text).read();
}

}  // namespace rewards
