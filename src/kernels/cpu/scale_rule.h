// How a block of quantised values gets its power-of-two scale: the same rule for weights (tensor/formats/block_scale.h)
// and for activations (kernels/cpu/simulate.h). Spec 6.5, 6.6, decisions 3, 19.
#pragma once
#include <cstdint>

namespace kernels::cpu {

enum class BlockFormat { e4m3, e2m1 };

// The fields of the largest value of a format, 448 = 1.75 * 2^8 or 6 = 1.5 * 2^2, that decide on a power-of-two scale.
struct ScaleRule {
  int32_t exponent, mantissa;
};
constexpr ScaleRule scale_rule(BlockFormat format) {
  return format == BlockFormat::e4m3 ? ScaleRule{8, 0x600000} : ScaleRule{2, 0x400000};
}

// The ue8m0 byte of the smallest power of two s with s * largest value >= amax, from the bits of a finite amax >= 0:
// amax's exponent field less the rule's, one more when amax's mantissa field is above the rule's.
constexpr int32_t scale_byte(int32_t amax_bits, ScaleRule rule) {
  const int32_t byte = (amax_bits >> 23) - rule.exponent + ((amax_bits & 0x7fffff) > rule.mantissa ? 1 : 0);
  return byte > 0 ? byte : 0;
}

inline constexpr int kZeroBlockByte = 127 - 22;  // decisions 3

// The least that the largest magnitude of an activation group counts as.
constexpr float activation_floor(BlockFormat format) { return format == BlockFormat::e4m3 ? 1e-4f : 0x1.8p-124f; }

}  // namespace kernels::cpu
