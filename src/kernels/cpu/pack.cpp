// Writes panels. Each panel is written by one thread, in order of k.
#include "kernels/cpu/pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/parallel.h"

namespace kernels::cpu {
namespace {

constexpr int64_t kGrainBytes = 1 << 17;  // about 30 microseconds of copying

float e4m3_value(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

float e2m1_value(int code) {
  constexpr std::array<float, 8> kMagnitudes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = kMagnitudes[static_cast<size_t>(code & 7)];
  return code & 8 ? -magnitude : magnitude;
}

// body(panel) for every panel of [n, k].
template <class F>
void for_panels(WeightFormat format, int64_t n, int64_t k, const F& body) {
  const int64_t bytes = std::max<int64_t>(panel_size(format, k), 1);
  base::parallel_for(num_panels(n), std::max<int64_t>(kGrainBytes / bytes, 1), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) body(panel);
  });
}

template <class T>
using Square = T[kPanel][kPanel];  // [output][k]

// body(tile, begin, count) for the `count` k from `begin` on, sixteen of them as long as there are as many; what lies
// outside [n, k] is zero.
template <class T, class F>
void for_tiles(const T* source, int64_t n, int64_t k, Strides strides, int64_t panel, const F& body) {
  const T* in = source + panel * kPanel * strides.n;
  const int64_t outputs = std::min(kPanel, n - panel * kPanel);
  Square<T> tile = {};
  for (int64_t begin = 0; begin < k; begin += kPanel, in += kPanel * strides.k) {
    const int64_t count = std::min(kPanel, k - begin);
    if (count < kPanel) std::fill_n(&tile[0][0], kPanel * kPanel, T{});
    if (strides.k == 1) {
      for (int64_t o = 0; o < outputs; ++o) std::copy_n(in + o * strides.n, count, tile[o]);
    } else {
      for (int64_t j = 0; j < count; ++j) {
        for (int64_t o = 0; o < outputs; ++o) tile[o][j] = in[o * strides.n + j * strides.k];
      }
    }
    body(tile, begin, count);
  }
}

}  // namespace

float code_value(WeightFormat format, const uint8_t* panel, int64_t output, int64_t k) {
  const PanelLayout layout = panel_layout(format);
  const uint8_t* step = panel + k / layout.step_k * layout.step_bytes;
  const int64_t j = k % layout.step_k, place = place_in_step(format, output, j);
  switch (format) {
    case WeightFormat::f32:
      return reinterpret_cast<const float*>(step)[place];
    case WeightFormat::bf16:
      return std::bit_cast<float>(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(step)[place]) << 16);
    case WeightFormat::e4m3:
      return e4m3_value(step[place]);
    case WeightFormat::e2m1:
      return e2m1_value(step[place] >> (4 * (j / 4)));
  }
  return 0;
}

int64_t panel_bytes(WeightFormat format, int64_t n, int64_t k) { return num_panels(n) * panel_size(format, k); }

int64_t num_scales(WeightFormat format, int64_t n, int64_t k) {
  const PanelLayout layout = panel_layout(format);
  if (layout.block_k == 0) return 0;
  return num_panels(n) * ceil_div(k, layout.block_k) * layout.scales_per_block;
}

void pack_f32(const float* source, int64_t n, int64_t k, Strides strides, float* panels) {
  for_panels(WeightFormat::f32, n, k, [&](int64_t panel) {
    float* out = panels + panel * kPanel * k;
    for_tiles(source, n, k, strides, panel, [&](const Square<float>& tile, int64_t, int64_t count) {
      for (int64_t j = 0; j < count; ++j, out += kPanel) {
        for (int64_t o = 0; o < kPanel; ++o) out[o] = tile[o][j];
      }
    });
  });
}

void pack_bf16(const float* source, int64_t n, int64_t k, Strides strides, uint16_t* panels) {
  constexpr PanelLayout layout = panel_layout(WeightFormat::bf16);
  for_panels(WeightFormat::bf16, n, k, [&](int64_t panel) {
    uint16_t* out = panels + panel * panel_size(WeightFormat::bf16, k) / 2;
    for_tiles(source, n, k, strides, panel, [&](const Square<float>& tile, int64_t, int64_t count) {
      for (int64_t j = 0; j < count; j += layout.step_k, out += layout.step_bytes / 2) {
        for (int64_t o = 0; o < kPanel; ++o) {
          for (int64_t i = 0; i < layout.step_k; ++i) {
            out[place_in_step(WeightFormat::bf16, o, i)] =
                static_cast<uint16_t>(std::bit_cast<uint32_t>(tile[o][j + i]) >> 16);
          }
        }
      }
    });
  });
}

void pack_e4m3(const uint8_t* codes, const float* block_scales, int64_t n, int64_t k, uint8_t* panels, float* scales) {
  constexpr PanelLayout layout = panel_layout(WeightFormat::e4m3);
  const int64_t blocks = ceil_div(k, layout.block_k);
  for_panels(WeightFormat::e4m3, n, k, [&](int64_t panel) {
    uint8_t* out = panels + panel * panel_size(WeightFormat::e4m3, k);
    const float* scale_in = block_scales + panel * kPanel / layout.block_k * blocks;
    float* scale_out = scales + panel * blocks;
    std::copy(scale_in, scale_in + blocks, scale_out);
    for_tiles(codes, n, k, {k, 1}, panel, [&](const Square<uint8_t>& tile, int64_t begin, int64_t count) {
      bool nan = false;
      for (int64_t j = 0; j < count; j += 2, out += layout.step_bytes) {
        for (int64_t o = 0; o < kPanel; ++o) {
          for (int64_t i = 0; i < 2; ++i) {
            const uint8_t code = tile[o][j + i];
            nan |= (code & 0x7F) == 0x7F;
            out[place_in_step(WeightFormat::e4m3, o, i)] = code;
          }
        }
      }
      // The decoders know no NaN: the block's scale carries it.
      if (nan) scale_out[begin / layout.block_k] = std::numeric_limits<float>::quiet_NaN();
    });
  });
}

void pack_e2m1(const uint8_t* codes, const float* block_scales, int64_t n, int64_t k, uint8_t* panels, float* scales) {
  constexpr PanelLayout layout = panel_layout(WeightFormat::e2m1);
  CHECK(k % 2 == 0, "e2m1 has pairs along k, k is {}", k);
  const int64_t blocks = ceil_div(k, layout.block_k);
  for_panels(WeightFormat::e2m1, n, k, [&](int64_t panel) {
    uint8_t* out = panels + panel * panel_size(WeightFormat::e2m1, k);
    for_tiles(codes, n, k / 2, {k / 2, 1}, panel, [&](const Square<uint8_t>& tile, int64_t, int64_t count) {
      for (int64_t j = 0; j < count; j += 4, out += layout.step_bytes) {  // j counts bytes, of two k each
        for (int64_t o = 0; o < kPanel; ++o) {
          for (int64_t i = 0; i < 2; ++i) {
            const uint8_t a = tile[o][j + i], b = tile[o][j + i + 2];
            out[place_in_step(WeightFormat::e2m1, o, 2 * i)] = static_cast<uint8_t>((a & 0x0F) | (b << 4));
            out[place_in_step(WeightFormat::e2m1, o, 2 * i + 1)] = static_cast<uint8_t>((a >> 4) | (b & 0xF0));
          }
        }
      }
    });
    const float* scale_in = block_scales + panel * kPanel * blocks;
    float* scale_out = scales + panel * blocks * kPanel;
    const int64_t outputs = std::min(kPanel, n - panel * kPanel);
    for (int64_t block = 0; block < blocks; ++block, scale_out += kPanel) {
      for (int64_t o = 0; o < outputs; ++o) scale_out[o] = scale_in[o * blocks + block];
      std::fill(scale_out + outputs, scale_out + kPanel, 0.0f);
    }
  });
}

void unpack(const PackedMatrix& weight, float* values) {
  const PanelLayout layout = panel_layout(weight.format);
  const int64_t blocks = layout.block_k == 0 ? 0 : ceil_div(weight.k, layout.block_k);
  for_panels(weight.format, weight.n, weight.k, [&](int64_t panel) {
    const auto* codes = static_cast<const uint8_t*>(weight.panels) + panel * panel_size(weight.format, weight.k);
    const float* scales = weight.scales + panel * blocks * layout.scales_per_block;
    const int64_t outputs = std::min(kPanel, weight.n - panel * kPanel);
    for (int64_t o = 0; o < outputs; ++o) {
      float* out = values + (panel * kPanel + o) * weight.k;
      const int64_t lane = layout.scales_per_block == 1 ? 0 : o;
      for (int64_t k = 0; k < weight.k; ++k) {
        out[k] = code_value(weight.format, codes, o, k);
        if (blocks > 0) out[k] *= scales[k / layout.block_k * layout.scales_per_block + lane];
      }
    }
  });
}

}  // namespace kernels::cpu
