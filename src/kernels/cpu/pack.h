// How codes lie inside a panel of 16 outputs: what pack.cpp writes and the products read. K is rounded up to whole
// steps, the rest of a step and the outputs beyond N are zero codes.
//
//   f32   step of 1 k:  float [16]
//   bf16  step of 2 k:  uint16 [16][2]   (output, k)
//   e4m3  step of 2 k:  uint8  [16][2]   (output, k)
//   e2m1  step of 4 k:  uint8  [16][2]   (output, pair of k; low nibble = even k)
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
      return {4, kPanel * 2, 32, kPanel};
  }
  return {};
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t num_panels(int64_t n) { return ceil_div(n, kPanel); }

// Bytes of one panel.
constexpr int64_t panel_size(WeightFormat format, int64_t k) {
  const PanelLayout layout = panel_layout(format);
  return ceil_div(k, layout.step_k) * layout.step_bytes;
}

}  // namespace kernels::cpu
