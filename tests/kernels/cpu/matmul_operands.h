// Weights of every format with the values they stand for, inputs on the grid that products of that format see, and the
// product as a scalar chain in the order of kernels/cpu/matmul.h.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/matmul.h"

namespace kernels::cpu {

struct Weight {
  WeightFormat format = WeightFormat::f32;
  int64_t n = 0, k = 0;
  std::vector<float> values;        // [n, k], of quantised formats without their scale
  std::vector<float> block_scales;  // as stored
  std::vector<uint8_t> codes;       // as stored
  std::vector<uint8_t> panels;
  std::vector<float> scales;

  PackedMatrix packed() const { return {format, n, k, panels.data(), scales.data()}; }
  int64_t block_k() const { return format == WeightFormat::e4m3 ? 128 : format == WeightFormat::e2m1 ? 32 : k; }
  bool scaled() const { return format == WeightFormat::e4m3 || format == WeightFormat::e2m1; }
  int64_t blocks() const { return (k + block_k() - 1) / block_k(); }
  float scale(int64_t row, int64_t block) const {
    if (!scaled()) return 1;
    return block_scales[static_cast<size_t>((format == WeightFormat::e4m3 ? row / 128 : row) * blocks() + block)];
  }
  float value(int64_t row, int64_t column) const { return values[static_cast<size_t>(row * k + column)]; }
};

inline float e4m3_value(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
  if ((code & 0x7F) == 0x7F) value = NAN;
  return std::copysign(value, code & 0x80 ? -1.0f : 1.0f);
}

inline float e2m1_value(int code) {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return std::copysign(magnitudes[code & 7], code & 8 ? -1.0f : 1.0f);
}

inline float bf16_value(float value) {  // towards zero: any bf16 value will do
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000u);
}

inline void pack(Weight& weight) {
  weight.panels.resize(static_cast<size_t>(panel_bytes(weight.format, weight.n, weight.k)));
  weight.scales.resize(static_cast<size_t>(num_scales(weight.format, weight.n, weight.k)));
  const Strides strides{weight.k, 1};
  switch (weight.format) {
    case WeightFormat::f32:
      pack_f32(weight.values.data(), weight.n, weight.k, strides, reinterpret_cast<float*>(weight.panels.data()));
      break;
    case WeightFormat::bf16:
      pack_bf16(weight.values.data(), weight.n, weight.k, strides, reinterpret_cast<uint16_t*>(weight.panels.data()));
      break;
    case WeightFormat::e4m3:
      pack_e4m3(weight.codes.data(), weight.block_scales.data(), weight.n, weight.k, weight.panels.data(),
                weight.scales.data());
      break;
    case WeightFormat::e2m1:
      pack_e2m1(weight.codes.data(), weight.block_scales.data(), weight.n, weight.k, weight.panels.data(),
                weight.scales.data());
      break;
  }
}

// Codes: any but NaN. Scales: powers of two from 2^-20 to 2^4.
inline Weight random_weight(WeightFormat format, int64_t n, int64_t k, uint32_t seed) {
  std::mt19937 random(seed);
  Weight weight{format, n, k, {}, {}, {}, {}, {}};
  weight.values.resize(static_cast<size_t>(n * k));
  std::normal_distribution<float> normal;
  if (!weight.scaled()) {
    for (float& value : weight.values)
      value = format == WeightFormat::bf16 ? bf16_value(normal(random)) : normal(random);
  } else {
    const int64_t rows = format == WeightFormat::e4m3 ? (n + 127) / 128 : n;
    weight.block_scales.resize(static_cast<size_t>(rows * weight.blocks()));
    for (float& scale : weight.block_scales) scale = std::ldexp(1.0f, static_cast<int>(random() % 25) - 20);
    weight.codes.resize(static_cast<size_t>(format == WeightFormat::e4m3 ? n * k : n * k / 2));
    for (uint8_t& code : weight.codes) {
      code = static_cast<uint8_t>(random());
      if (format == WeightFormat::e4m3 && (code & 0x7F) == 0x7F) code = 0;
    }
    for (size_t i = 0; i < weight.values.size(); ++i) {
      weight.values[i] =
          format == WeightFormat::e4m3 ? e4m3_value(weight.codes[i]) : e2m1_value(weight.codes[i / 2] >> (4 * (i % 2)));
    }
  }
  pack(weight);
  return weight;
}

// Of quantised formats: e4m3 values times a power of two per group of 128.
inline std::vector<float> random_input(WeightFormat format, int64_t m, int64_t k, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * k));
  const bool grid = format == WeightFormat::e4m3 || format == WeightFormat::e2m1;
  float scale = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % static_cast<size_t>(k) % 128 == 0) scale = std::ldexp(1.0f, static_cast<int>(random() % 30) - 22);
    x[i] = grid ? e4m3_value(static_cast<int>(random() % 0x7F) | static_cast<int>(random() & 0x80)) * scale
                : normal(random);
  }
  return x;
}

// What multiply() must give, [m, n], to the bit.
inline std::vector<float> chain(const Weight& weight, const std::vector<float>& x, int64_t m) {
  std::vector<float> y;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t n = 0; n < weight.n; ++n) {
      float sum = 0;
      for (int64_t block = 0; block < weight.blocks(); ++block) {
        float partial = 0;
        for (int64_t k = block * weight.block_k(); k < std::min((block + 1) * weight.block_k(), weight.k); ++k) {
          partial = std::fma(x[static_cast<size_t>(row * weight.k + k)], weight.value(n, k), partial);
        }
        sum = weight.scaled() ? std::fma(partial, weight.scale(n, block), sum) : partial;
      }
      y.push_back(sum);
    }
  }
  return y;
}

inline std::string describe(const Weight& weight) {
  const char* names[] = {"f32", "bf16", "e4m3", "e2m1"};
  return std::string(names[static_cast<int>(weight.format)]) + " N " + std::to_string(weight.n) + " K " +
         std::to_string(weight.k);
}

}  // namespace kernels::cpu
