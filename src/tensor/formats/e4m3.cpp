// e4m3 on the host by float8.h, on tensors by torch's own dtype (a test compares the two over every code and tie).
#include "tensor/formats/e4m3.h"

#include <bit>
#include <cmath>

#include "tensor/formats/float8.h"

namespace tensor {
namespace {
constexpr Float8 kE4m3{.mantissa_bits = 3, .bias = 7, .max = kE4m3Max};
}  // namespace

uint8_t e4m3_from_float(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  return sign | (std::isnan(value) ? 0x7f : nearest_magnitude(std::fabs(value), kE4m3));
}

float e4m3_to_float(uint8_t code) {
  const uint8_t magnitude = code & 0x7f;
  const float value = magnitude == 0x7f ? std::bit_cast<float>(0x7fc00000u) : magnitude_of(magnitude, kE4m3);
  return (code & 0x80) != 0 ? -value : value;
}

Tensor e4m3_encode(const Tensor& values) {
  return values.clamp(-kE4m3Max, kE4m3Max).to(at::kFloat8_e4m3fn).view(at::kByte);
}

Tensor e4m3_decode(const Tensor& codes) { return codes.contiguous().view(at::kFloat8_e4m3fn).to(at::kFloat); }

}  // namespace tensor
