// e2m1 by the seven limits between its eight magnitudes; a limit itself belongs to the even code beside it.
#include "tensor/formats/e2m1.h"

#include <array>
#include <cmath>

namespace tensor {
namespace {

constexpr std::array<float, 8> kMagnitudes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// Limit i: magnitudes above it have a code greater than i. Where the tie goes up (to an even code), the limit is the
// float just below the middle.
const std::array<float, 7>& limits() {
  static const std::array<float, 7> kLimits = [] {
    std::array<float, 7> result{};
    for (size_t i = 0; i < 7; ++i) {
      const float middle = (kMagnitudes[i] + kMagnitudes[i + 1]) / 2;
      result[i] = i % 2 == 0 ? middle : std::nextafter(middle, 0.0f);
    }
    return result;
  }();
  return kLimits;
}

}  // namespace

uint8_t e2m1_from_float(float value) {
  CHECK(!std::isnan(value), "e2m1 has no NaN");
  const float magnitude = std::fabs(value);
  uint8_t code = 0;
  for (const float limit : limits()) code = static_cast<uint8_t>(code + (magnitude > limit));
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

float e2m1_to_float(uint8_t code) {
  const float magnitude = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

Tensor e2m1_codes(const Tensor& values) {
  const Tensor wide = values.to(at::kFloat), magnitude = wide.abs();
  Tensor codes = at::signbit(wide).to(at::kByte).mul_(8);
  for (const float limit : limits()) codes.add_(magnitude > limit);
  return codes;
}

Tensor e2m1_values(const Tensor& codes) {
  std::array<float, 16> table{};
  for (uint8_t code = 0; code < 16; ++code) table[code] = e2m1_to_float(code);
  const Tensor values = at::tensor(at::ArrayRef<float>(table.data(), table.size())).to(codes.device());
  return values.index_select(0, codes.reshape({-1}).to(at::kInt)).view(codes.sizes());
}

Tensor e2m1_pack(const Tensor& codes) {
  if (codes.size(-1) % 2 != 0) {
    base::fail(base::Code::invalid_argument, "e2m1: {} columns can't be stored two per byte; the number must be even",
               codes.size(-1));
  }
  const Tensor pairs = codes.unflatten(-1, {-1, 2});
  return pairs.select(-1, 0).bitwise_or(at::bitwise_left_shift(pairs.select(-1, 1), 4));
}

Tensor e2m1_unpack(const Tensor& bytes) {
  return at::stack({bytes.bitwise_and(15), at::bitwise_right_shift(bytes, 4)}, -1).flatten(-2);
}

}  // namespace tensor
