// Vectors of four f32 by the compiler's vector types: every x86-64 and ARM64 has them, and results don't depend on the
// width.
#include "tensor/formats/simulate_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "tensor/formats/ue8m0.h"

namespace tensor {
namespace {

constexpr int64_t kLanes = 4;
constexpr int64_t kGrain = 32768;  // values below which a second thread costs more than it brings
typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(16)));

template <class V>
V load(const float* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// The last, incomplete vector of a run: zeros behind.
template <class V>
V load_part(const float* from, int64_t count) {
  V v{};
  std::memcpy(&v, from, static_cast<size_t>(count) * sizeof(float));
  return v;
}

template <class V>
void store(float* to, V v, int64_t count = kLanes) {
  std::memcpy(to, &v, static_cast<size_t>(count) * sizeof(float));
}

// Bits of the largest magnitude: for non-negative floats the order of the bits is the order of the values, NaN above
// all.
int32_t largest_bits(const float* from, int64_t count) {
  Ints largest{}, second{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const Ints a = load<Ints>(from + i) & 0x7fffffff, b = load<Ints>(from + i + kLanes) & 0x7fffffff;
    largest = a > largest ? a : largest;
    second = b > second ? b : second;
  }
  for (; i < count; i += kLanes) {
    const Ints a = load_part<Ints>(from + i, std::min(kLanes, count - i)) & 0x7fffffff;
    largest = a > largest ? a : largest;
  }
  largest = second > largest ? second : largest;
  return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
}

// The nearest value with kMantissa mantissa bits and an exponent of at least kMinExponent, ties to even, for magnitudes
// far below 2^100. Adding and taking away 1.5 * 2^23 steps of the grid makes the addition itself round.
template <int kMantissa, int kMinExponent>
Floats to_grid(Floats v) {
  const Ints bits = std::bit_cast<Ints>(v), field = bits & 0x7f800000;
  constexpr int32_t kLowest = (127 + kMinExponent) << 23;
  const Ints exponent = field > kLowest ? field : kLowest - Ints{};
  const Floats shift = std::bit_cast<Floats>((exponent + ((23 - kMantissa) << 23)) | 0x00400000);
  const Floats rounded = (v + shift) - shift;
  return std::bit_cast<Floats>(std::bit_cast<Ints>(rounded) |
                               (bits & std::numeric_limits<int32_t>::min()));  // -0 stays
}

template <int kMantissa, int kMinExponent>
void scale_and_round(const float* from, float* to, int64_t count, float scale, float reciprocal) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(to + i, to_grid<kMantissa, kMinExponent>(load<Floats>(from + i) * reciprocal) * scale);
  }
  if (i < count) {
    const Floats last = load_part<Floats>(from + i, count - i);
    store(to + i, to_grid<kMantissa, kMinExponent>(last * reciprocal) * scale, count - i);
  }
}

void simulate_group(const float* from, float* to, int64_t count, BlockFormat format) {
  const int32_t amax = std::max(largest_bits(from, count), std::bit_cast<int32_t>(activation_floor(format)));
  if (amax >= 0x7f800000) {  // an infinity or a NaN in the group
    std::fill(to, to + count, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const int32_t byte = scale_byte(amax, scale_rule(format));
  const float scale = ue8m0_to_float(static_cast<uint8_t>(byte));
  const float reciprocal = ue8m0_to_float(static_cast<uint8_t>(254 - byte));
  if (format == BlockFormat::e4m3) {
    scale_and_round<3, -6>(from, to, count, scale, reciprocal);
  } else {
    scale_and_round<1, 0>(from, to, count, scale, reciprocal);
  }
}

}  // namespace

void simulate_groups_cpu(const GroupedRows& rows, BlockFormat format) {
  if (rows.count == 0) return;
  const int64_t per_row = (rows.columns + rows.group - 1) / rows.group;
  const int64_t num_groups = rows.count / rows.columns * per_row;
  at::parallel_for(0, num_groups, std::max<int64_t>(kGrain / rows.group, 1), [&](int64_t begin, int64_t end) {
    int64_t row = begin / per_row, column = begin % per_row * rows.group;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = row * rows.columns + column;
      simulate_group(rows.from + at, rows.to + at, std::min(rows.group, rows.columns - column), format);
      column += rows.group;
      if (column >= rows.columns) column = 0, ++row;
    }
  });
}

void round_bf16_cpu(const float* from, float* to, int64_t count) {
  const auto round = [](Words bits) {
    const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits | 0x00400000u) & 0xffff0000u : rounded;  // NaN, made quiet
  };
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) store(to + i, round(load<Words>(from + i)));
    if (i < end) store(to + i, round(load_part<Words>(from + i, end - i)), end - i);
  });
}

}  // namespace tensor
