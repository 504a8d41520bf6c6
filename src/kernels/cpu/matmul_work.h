// How multiply() is cut into units of work, and what a unit is to the kernels: some rows of one product times a group
// of its panels.
#pragma once
#include <cstdint>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/pack.h"

namespace kernels::cpu {

inline constexpr int64_t kUnitPanels = 4;  // panels of a unit at most: 64 outputs
inline constexpr int64_t kUnitRows = 96;   // rows of a unit at most

struct Unit {
  int64_t first_row = 0, num_rows = 0;      // num_rows <= kUnitRows
  int64_t first_panel = 0, num_panels = 0;  // num_panels <= kUnitPanels
};

inline const float* input_row(const Product& product, int64_t row) {
  return product.input + (product.input_rows ? product.input_rows[row] : row) * product.input_stride;
}

inline float* output_row(const Product& product, int64_t row) {
  return product.output + (product.output_rows ? product.output_rows[row] : row) * product.output_stride;
}

// The unit by plain loops: what a machine without fused multiply-adds in vectors runs.
void multiply_unit_plain(const Product& product, const Unit& unit);

}  // namespace kernels::cpu
