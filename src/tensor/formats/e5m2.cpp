// e5m2 on the host by float8.h, on tensors by torch's own dtype, which does not saturate by itself.
#include "tensor/formats/e5m2.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tensor/formats/float8.h"

namespace tensor {
namespace {
constexpr Float8 kE5m2{.mantissa_bits = 2, .bias = 15, .max = kE5m2Max};
constexpr uint8_t kInfinity = 0x7c;
}  // namespace

uint8_t e5m2_from_float(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  return sign | (std::isnan(value) ? 0x7f : nearest_magnitude(std::fabs(value), kE5m2));
}

float e5m2_to_float(uint8_t code) {
  const uint8_t magnitude = code & 0x7f;
  const float value = magnitude > kInfinity    ? std::bit_cast<float>(0x7fc00000u)
                      : magnitude == kInfinity ? std::numeric_limits<float>::infinity()
                                               : magnitude_of(magnitude, kE5m2);
  return (code & 0x80) != 0 ? -value : value;
}

Tensor e5m2_encode(const Tensor& values) {
  return values.clamp(-kE5m2Max, kE5m2Max).to(at::kFloat8_e5m2).view(at::kByte);
}

Tensor e5m2_decode(const Tensor& codes) { return codes.contiguous().view(at::kFloat8_e5m2).to(at::kFloat); }

}  // namespace tensor
