// FNUZ on the host by float8.h, on tensors by torch's own dtype; from OCP's e4m3 by the bits.
#include "tensor/formats/e4m3_fnuz.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "tensor/formats/float8.h"

namespace tensor {
namespace {
constexpr Float8 kFnuz{.mantissa_bits = 3, .bias = 8, .max = kE4m3FnuzMax};
constexpr uint8_t kNan = 0x80;
}  // namespace

uint8_t e4m3_fnuz_from_float(float value) {
  if (std::isnan(value)) return kNan;
  const uint8_t magnitude = nearest_magnitude(std::fabs(value), kFnuz);
  return magnitude == 0 || !std::signbit(value) ? magnitude : magnitude | 0x80;
}

float e4m3_fnuz_to_float(uint8_t code) {
  if (code == kNan) return std::bit_cast<float>(0x7fc00000u);
  const float value = magnitude_of(code & 0x7f, kFnuz);
  return (code & 0x80) != 0 ? -value : value;
}

Tensor e4m3_fnuz_encode(const Tensor& values) {
  return values.clamp(-kE4m3FnuzMax, kE4m3FnuzMax).to(at::kFloat8_e4m3fnuz).view(at::kByte);
}

Tensor e4m3_fnuz_decode(const Tensor& codes) { return codes.contiguous().view(at::kFloat8_e4m3fnuz).to(at::kFloat); }

Tensor e4m3_to_fnuz(const Tensor& codes) {
  const Tensor is_nan = codes.bitwise_and(0x7f) == 0x7f, is_minus_zero = codes == 0x80;
  return codes.masked_fill(is_minus_zero, 0).masked_fill_(is_nan, kNan);
}

FnuzWeight to_fnuz(const Quantised& quantised) {
  if (quantised.format != BlockFormat::e4m3) {
    base::fail(base::Code::invalid_argument, "e4m3 FNUZ: the weight is e2m1, only e4m3 codes can become FNUZ");
  }
  const Tensor& scales = quantised.scales;
  const bool real = scales.scalar_type() == at::kFloat;
  return {e4m3_to_fnuz(quantised.codes), real ? scales * 2 : scales.clamp_max(254) + 1};
}

}  // namespace tensor
