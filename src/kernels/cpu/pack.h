// How codes lie inside a panel of 16 outputs: what pack.cpp writes and the products read. K is rounded up to whole
// steps; the rest of a step and the outputs beyond N are zero codes. An output's codes stay in its 32-bit lane (e4m3:
// 16-bit lane), so that vectors of four, eight and sixteen lanes read the same panel without moving lanes.
//
//   f32   step of 1 k:  float [16 o]
//   bf16  step of 2 k:  uint16 [16 o][k 0, k 1]
//   e4m3  step of 2 k:  uint8 [16 o][k 1, k 0]: the first k in the upper bytes
//   e2m1  step of 8 k:  uint8 [4 o / 4][k / 2: 0 or 1][4 o % 4][k % 2], with k + 4 in the upper nibble
#pragma once
#include <cstdint>

#include "kernels/cpu/matmul.h"

namespace kernels::cpu {

inline constexpr int64_t kPanel = 16;  // outputs

struct PanelLayout {
  int64_t step_k = 1, step_bytes = 0;
  int64_t block_k = 0;           // k that share a scale; 0: no scales
  int64_t scales_per_block = 0;  // in a panel: 1, or one for each output
};

constexpr PanelLayout panel_layout(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
      return {1, kPanel * 4, 0, 0};
    case WeightFormat::bf16:
      return {2, kPanel * 4, 0, 0};
    case WeightFormat::e4m3:
      return {2, kPanel * 2, 128, 1};
    case WeightFormat::e2m1:
      return {8, kPanel * 4, 32, kPanel};
  }
  return {};
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t num_panels(int64_t n) { return ceil_div(n, kPanel); }

// Where the code of (output, j-th k) lies in a step: in units of the code, for e2m1 of two of them (k and k + 4).
constexpr int64_t place_in_step(WeightFormat format, int64_t output, int64_t j) {
  switch (format) {
    case WeightFormat::f32:
      return output;
    case WeightFormat::bf16:
      return 2 * output + j;
    case WeightFormat::e4m3:
      return 2 * output + 1 - j;
    case WeightFormat::e2m1:
      return output / 4 * 16 + j % 4 / 2 * 8 + output % 4 * 2 + j % 2;
  }
  return 0;
}

// Bytes of one panel.
constexpr int64_t panel_size(WeightFormat format, int64_t k) {
  const PanelLayout layout = panel_layout(format);
  return ceil_div(k, layout.step_k) * layout.step_bytes;
}

// Weight (output, k) of a panel, without its scale. A NaN code's value is a number here: pack_e4m3 puts the NaN into
// the scale.
float code_value(WeightFormat format, const uint8_t* panel, int64_t output, int64_t k);

}  // namespace kernels::cpu
