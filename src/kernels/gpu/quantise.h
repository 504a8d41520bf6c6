// Quantised values in blocks with power-of-two scales: activations in groups along a row, weights in square blocks.
//
// In        f32, contiguous device memory; rows R of C columns, E matrices of a stack
// Out       codes: e4m3, one a byte, shaped as the values; scales: ue8m0 bytes, one a group or block of 128 x 128
// Numerics  scales and values of tensor/formats/block_scale.h, to the bit. A block with a NaN or an infinity: scale
//           byte 255, NaN codes, all NaN when read back. A block of zeros of a weight: byte 105, codes 0.
// Encoding  ocp: what checkpoints and NVIDIA's chips have. fnuz: what gfx942 multiplies
//           (tensor/formats/e4m3_fnuz.h): the same values by codes of half of them and doubled scales; the largest
//           scale, 2^127, becomes NaN.
// Empty     no rows or columns: nothing is done
// Errors    Error{internal}: sizes; Error{unavailable}: the GPU refuses the kernel
// Source    spec 6.2 to 6.6, decisions 3, 19
#pragma once
#include <cstdint>

#include "kernels/cpu/simulate.h"
#include "kernels/gpu/launch.h"

namespace kernels::gpu {

using cpu::BlockFormat;

enum class Encoding { ocp, fnuz };

// Activations, quantised and back in one go: cpu::simulate_groups. `to` may be `from`.
void simulate_groups(const cpu::GroupedRows& rows, BlockFormat format, Queue queue);

// Activations to e4m3 (1 x 128: group 128).
struct QuantisedGroups {
  const float* values = nullptr;  // [R, C]
  uint8_t* codes = nullptr;       // [R, C]
  uint8_t* scales = nullptr;      // [R, ceil(C / group)]
  int64_t rows = 0, columns = 0, group = 128;
  Encoding encoding = Encoding::ocp;
};
void quantise_groups(const QuantisedGroups& groups, Queue queue);

// Weights to e4m3. A block never crosses from one matrix of a stack into the next.
struct QuantisedBlocks {
  const float* values = nullptr;  // [E, R, C]
  uint8_t* codes = nullptr;       // [E, R, C]
  uint8_t* scales = nullptr;      // [E, ceil(R / 128), ceil(C / 128)]
  int64_t matrices = 1, rows = 0, columns = 0;
  Encoding encoding = Encoding::ocp;
};
void quantise_blocks(const QuantisedBlocks& blocks, Queue queue);

// Code times scale, rounded once, for blocks of any shape (weights 128 x 128, activations 1 x group).
struct StoredBlocks {
  const uint8_t* codes = nullptr;        // [E, R, C]
  const uint8_t* scale_bytes = nullptr;  // [E, ceil(R / block_rows), ceil(C / block_columns)] ue8m0, or null:
  const float* scale_values = nullptr;   // f32 scales of the same shape
  float* values = nullptr;               // [E, R, C]
  int64_t matrices = 1, rows = 0, columns = 0, block_rows = 128, block_columns = 128;
  Encoding encoding = Encoding::ocp;
};
void dequantise_blocks(const StoredBlocks& blocks, Queue queue);

}  // namespace kernels::gpu
