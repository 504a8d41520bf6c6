// Writes panels. Each panel is written by one thread, in order of k.
#include "kernels/cpu/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/parallel.h"

namespace kernels::cpu {
namespace {

constexpr int64_t kGrainBytes = 1 << 17;  // about 30 microseconds of copying

// body(panel) for every panel of [n, k].
template <class F>
void for_panels(WeightFormat format, int64_t n, int64_t k, const F& body) {
  const int64_t bytes = std::max<int64_t>(panel_size(format, k), 1);
  base::parallel_for(num_panels(n), std::max<int64_t>(kGrainBytes / bytes, 1), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) body(panel);
  });
}

}  // namespace

int64_t panel_bytes(WeightFormat format, int64_t n, int64_t k) { return num_panels(n) * panel_size(format, k); }

int64_t num_scales(WeightFormat format, int64_t n, int64_t k) {
  const PanelLayout layout = panel_layout(format);
  if (layout.block_k == 0) return 0;
  return num_panels(n) * ceil_div(k, layout.block_k) * layout.scales_per_block;
}

void pack_f32(const float* source, int64_t n, int64_t k, Strides strides, float* panels) {
  for_panels(WeightFormat::f32, n, k, [&](int64_t panel) {
    float* out = panels + panel * kPanel * k;
    const int64_t outputs = std::min(kPanel, n - panel * kPanel);
    const float* in = source + panel * kPanel * strides.n;
    for (int64_t i = 0; i < k; ++i, out += kPanel) {
      for (int64_t o = 0; o < outputs; ++o) out[o] = in[o * strides.n + i * strides.k];
      std::fill(out + outputs, out + kPanel, 0.0f);
    }
  });
}

void pack_bf16(const float* source, int64_t n, int64_t k, Strides strides, uint16_t* panels) {
  for_panels(WeightFormat::bf16, n, k, [&](int64_t panel) {
    uint16_t* out = panels + panel * panel_size(WeightFormat::bf16, k) / 2;
    const int64_t outputs = std::min(kPanel, n - panel * kPanel);
    const float* in = source + panel * kPanel * strides.n;
    for (int64_t step = 0; step < k; step += 2, out += 2 * kPanel) {
      for (int64_t o = 0; o < kPanel; ++o) {
        for (int64_t j = 0; j < 2; ++j) {
          const bool inside = o < outputs && step + j < k;
          const float value = inside ? in[o * strides.n + (step + j) * strides.k] : 0.0f;
          out[2 * o + j] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
        }
      }
    }
  });
}

void pack_e4m3(const uint8_t* codes, const float* block_scales, int64_t n, int64_t k, uint8_t* panels, float* scales) {
  constexpr PanelLayout layout = panel_layout(WeightFormat::e4m3);
  const int64_t blocks = ceil_div(k, layout.block_k);
  for_panels(WeightFormat::e4m3, n, k, [&](int64_t panel) {
    uint8_t* out = panels + panel * panel_size(WeightFormat::e4m3, k);
    const int64_t outputs = std::min(kPanel, n - panel * kPanel);
    const uint8_t* in = codes + panel * kPanel * k;
    const float* scale_in = block_scales + panel * kPanel / layout.block_k * blocks;
    float* scale_out = scales + panel * blocks;
    std::copy(scale_in, scale_in + blocks, scale_out);
    for (int64_t step = 0; step < k; step += 2, out += 2 * kPanel) {
      for (int64_t o = 0; o < kPanel; ++o) {
        for (int64_t j = 0; j < 2; ++j) {
          const bool inside = o < outputs && step + j < k;
          const uint8_t code = inside ? in[o * k + step + j] : uint8_t{0};
          out[2 * o + j] = code;
          // The decoders know no NaN: the block's scale carries it.
          if ((code & 0x7F) == 0x7F) scale_out[step / layout.block_k] = std::numeric_limits<float>::quiet_NaN();
        }
      }
    }
  });
}

void pack_e2m1(const uint8_t* codes, const float* block_scales, int64_t n, int64_t k, uint8_t* panels, float* scales) {
  constexpr PanelLayout layout = panel_layout(WeightFormat::e2m1);
  CHECK(k % 2 == 0, "e2m1 has pairs along k, k is {}", k);
  const int64_t blocks = ceil_div(k, layout.block_k), row_bytes = k / 2;
  for_panels(WeightFormat::e2m1, n, k, [&](int64_t panel) {
    uint8_t* out = panels + panel * panel_size(WeightFormat::e2m1, k);
    const int64_t outputs = std::min(kPanel, n - panel * kPanel);
    const uint8_t* in = codes + panel * kPanel * row_bytes;
    for (int64_t pair = 0; pair < row_bytes; pair += 2, out += 2 * kPanel) {
      for (int64_t o = 0; o < kPanel; ++o) {
        for (int64_t j = 0; j < 2; ++j) {
          out[2 * o + j] = o < outputs && pair + j < row_bytes ? in[o * row_bytes + pair + j] : uint8_t{0};
        }
      }
    }
    const float* scale_in = block_scales + panel * kPanel * blocks;
    float* scale_out = scales + panel * blocks * kPanel;
    for (int64_t block = 0; block < blocks; ++block, scale_out += kPanel) {
      for (int64_t o = 0; o < outputs; ++o) scale_out[o] = scale_in[o * blocks + block];
      std::fill(scale_out + outputs, scale_out + kPanel, 0.0f);
    }
  });
}

}  // namespace kernels::cpu
