// The fast CPU form of simulate_groups and round_bf16 over raw f32: one pass for the largest magnitude while the group
// is read into the cache, one for rounding. Equal to the tensor operations to the bit. Not for use outside tensor/.
#pragma once
#include <cstdint>

#include "tensor/formats/block_scale.h"

namespace tensor {

// Byte of a power-of-two scale from the bits of a block's largest magnitude: its exponent field less `exponent`, one
// more when its mantissa field is above `mantissa` (those of the format's largest value).
struct PowerOfTwoScale {
  int32_t exponent, mantissa;
};
constexpr PowerOfTwoScale power_of_two_scale(BlockFormat format) {
  return format == BlockFormat::e4m3 ? PowerOfTwoScale{8, 0x600000} : PowerOfTwoScale{2, 0x400000};  // 448, 6
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
