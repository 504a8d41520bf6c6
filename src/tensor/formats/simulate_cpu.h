// The fast CPU form of simulate_groups and round_bf16 over raw f32: one pass for the largest magnitude while the group
// is read into the cache, one for rounding. Equal to the tensor operations to the bit. Not for use outside tensor/.
#pragma once
#include <cstdint>

#include "tensor/formats/block_scale.h"

namespace tensor {

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
constexpr float activation_floor(BlockFormat format) { return format == BlockFormat::e4m3 ? 1e-4f : 0x1.8p-124f; }

struct GroupedRows {
  const float* from;
  float* to;
  int64_t count;    // values in all
  int64_t columns;  // values of a row; count is a multiple
  int64_t group;    // values of a group; the last of a row may be shorter
};

void simulate_groups_cpu(const GroupedRows& rows, BlockFormat format);
void round_bf16_cpu(const float* from, float* to, int64_t count);

}  // namespace tensor
