// e4m3 on the host by bit arithmetic, on tensors by torch's own dtype (a test compares the two over every code and
// tie).
#include "tensor/formats/e4m3.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/formats/ue8m0.h"

namespace tensor {

uint8_t e4m3_from_float(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  if (std::isnan(value)) return sign | 0x7f;
  const float magnitude = std::min(std::fabs(value), kE4m3Max);
  // In units of the grid's step at this magnitude: 2^(exponent - 3), never finer than 2^-9.
  const int exponent = std::max(magnitude == 0 ? -6 : std::ilogb(magnitude), -6);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));  // 0..16, ties to even
  // Below 8 steps: subnormal, exponent field 0. 16 steps carry into the next exponent by themselves.
  return static_cast<uint8_t>(sign | (((exponent + 6) << 3) + steps));
}

float e4m3_to_float(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const float sign = (code & 0x80) != 0 ? -1.0f : 1.0f;
  if ((code & 0x7f) == 0x7f) return std::copysign(std::bit_cast<float>(0x7fc00000u), sign);
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                               : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
}

Tensor e4m3_encode(const Tensor& values) {
  return values.clamp(-kE4m3Max, kE4m3Max).to(at::kFloat8_e4m3fn).view(at::kByte);
}

Tensor e4m3_decode(const Tensor& codes) { return codes.contiguous().view(at::kFloat8_e4m3fn).to(at::kFloat); }

}  // namespace tensor
