// Rounding of activations over raw f32: to bf16, and to the grids on which the quantised formats would store them, back
// as f32. Torch-free. One rounding per value, so results are those of the definition to the bit, whatever the vectors'
// width. `to` may be `from`.
#pragma once
#include <cstdint>

#include "kernels/cpu/scale_rule.h"

namespace kernels::cpu {

// The nearest bf16 value, ties to even. NaN stays NaN.
void round_bf16(const float* from, float* to, int64_t count);

struct GroupedRows {
  const float* from = nullptr;
  float* to = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t group = 0;  // values of a group, >= 1; the last of a row may be shorter
};

// Each group: the scale is the smallest power of two s with s * (448 or 6) >= its largest magnitude or the floor (1e-4
// or 6 * 2^-126); values x / s go to the nearest code, ties to even, a negative that rounds to zero keeps its sign. A
// group with a NaN or an infinity is NaN throughout.
void simulate_groups(const GroupedRows& rows, BlockFormat format);

// Each row: Hadamard transform in natural (Sylvester) order, dim a power of two, by butterflies (a, b) -> (a + b, a -
// b) over the strides 1, 2, 4, .., dim / 2; times dim^-0.5; to bf16; e2m1 in groups of 32.
void hadamard_e2m1(const float* from, float* to, int64_t rows, int64_t dim);

}  // namespace kernels::cpu
