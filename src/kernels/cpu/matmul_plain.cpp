// The products element by element, in the order that matmul.h defines.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu/matmul_work.h"

namespace kernels::cpu {
namespace {

float round_to_bf16(float value) {
  if (std::isnan(value)) return std::bit_cast<float>(0x7FC00000u);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u);
}

float dot(const PackedMatrix& weight, int64_t panel, int64_t output, const float* input) {
  const PanelLayout layout = panel_layout(weight.format);
  const auto* codes = static_cast<const uint8_t*>(weight.panels) + panel * panel_size(weight.format, weight.k);
  const int64_t block_k = layout.block_k == 0 ? weight.k : layout.block_k;
  float sum = 0;
  for (int64_t begin = 0; begin < weight.k; begin += block_k) {
    float partial = 0;
    for (int64_t k = begin; k < std::min(begin + block_k, weight.k); ++k) {
      partial = std::fma(input[k], code_value(weight.format, codes, output, k), partial);
    }
    if (layout.block_k == 0) return partial;
    const int64_t block = panel * ceil_div(weight.k, block_k) + begin / block_k;
    const int64_t lane = layout.scales_per_block == 1 ? 0 : output;
    sum = std::fma(partial, weight.scales[block * layout.scales_per_block + lane], sum);
  }
  return sum;
}

}  // namespace

void multiply_unit_plain(const Product& product, const Unit& unit) {
  for (int64_t row = unit.first_row; row < unit.first_row + unit.num_rows; ++row) {
    const float* input = input_row(product, row);
    float* output = output_row(product, row);
    const int64_t end = std::min((unit.first_panel + unit.num_panels) * kPanel, product.weight.n);
    for (int64_t n = unit.first_panel * kPanel; n < end; ++n) {
      const float sum = dot(product.weight, n / kPanel, n % kPanel, input);
      output[n] = product.round_bf16 ? round_to_bf16(sum) : sum;
    }
  }
}

}  // namespace kernels::cpu
