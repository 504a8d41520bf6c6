// Norm of rows by their root mean square, with what follows it on queries and keys: rotary embedding and simulated
// storage. Over raw f32, torch-free.
//
//   u = x * rinv,  rinv = 1 / sqrt(sum(x^2) / k + eps),  y = u * weight, rounded
//
// then the last 2 * pairs dims turned (kernels/cpu/rope.h) and rounded, then the dims before them simulated. Sums over
// a row: kernels/cpu/row_inl.h. Roundings and simulation are passed straight through by the gradient:
//
//   g = dy (turned back) * weight,  dx = rinv * (g - u * (rinv * sum(g * x) / k)),  dweight = sum over rows of dy * u
//
// dweight: rows summed in blocks of 16, blocks in ascending order.
#pragma once
#include <cstdint>

#include "kernels/cpu/rope.h"

namespace kernels::cpu {

struct NormRows {
  const float* x = nullptr;       // [rows, k]
  const float* weight = nullptr;  // [k], or none
  int64_t rows = 0, k = 0;
  float eps = 0;
  bool round_bf16 = false;
  Turn turn;              // pairs == 0: none. Not inverse
  int64_t simulated = 0;  // > 0: e4m3 groups of this many values in the dims that are not turned
};
void rms_norm(const NormRows& rows, float* y);

// dx [rows, k] and dweight [k] are overwritten; either may be null.
void rms_norm_backward(const NormRows& rows, const float* dy, float* dx, float* dweight);

}  // namespace kernels::cpu
