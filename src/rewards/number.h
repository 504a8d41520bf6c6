// Numbers as people write them in answers, read and compared exactly: 8,556, 8 556, -3, .5, 1.2\times 10^{3}, 1e3,
// \frac12, 3/7, 3\frac{1}{2}, 2 2/3. No expression is evaluated, so no text can make this slow: at most 300 digits and
// exponents up to 300.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace rewards {

// A natural number of any size: digits of base 10^9, lowest first, no leading zeros.
class Natural {
 public:
  static Natural from_digits(std::string_view decimal_digits);
  Natural times(const Natural& other) const;
  Natural plus(const Natural& other) const;
  bool is_zero() const { return digits_.empty(); }
  bool operator==(const Natural&) const = default;

 private:
  std::vector<uint32_t> digits_;
  void trim();
};

struct Rational {
  bool negative = false;
  Natural numerator, denominator;  // not reduced; the denominator is not zero
};

// By value: 2/4 equals 1/2, -0 equals 0.
bool equal(const Rational& a, const Rational& b);

// nullopt if the text, apart from white space around it, is not wholly one number of the forms above.
std::optional<Rational> parse_number(std::string_view text);

}  // namespace rewards
