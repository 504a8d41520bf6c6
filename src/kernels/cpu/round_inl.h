// Rounding for kernels to inline: vectors to bf16, groups to the grids of quantised activations (kernels/cpu/simulate.h
// says what they are). Compiled once per instruction set, as row_inl.h.
#if defined(FURLONG_KERNELS_CPU_ROUND_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FURLONG_KERNELS_CPU_ROUND_INL_H
#undef FURLONG_KERNELS_CPU_ROUND_INL_H
#else
#define FURLONG_KERNELS_CPU_ROUND_INL_H
#endif

#include <bit>
#include <limits>

#include "kernels/cpu/row_inl.h"
#include "kernels/cpu/scale_rule.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

// The nearest bf16 value, ties to even, still as f32. A NaN stays one and is made quiet.
HWY_INLINE V round_to_bf16(V v) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v), high = hn::Set(du, 0xffff0000u);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), even);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  const V result = hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, quiet), hn::BitCast(d, rounded));
  return hn::And(result, hn::BitCast(d, high));
}

template <bool kBf16>
HWY_INLINE V round_if(V v) {
  if constexpr (kBf16) return round_to_bf16(v);
  return v;
}

// The nearest value with kMantissa mantissa bits and an exponent of at least kMinExponent, ties to even, for magnitudes
// far below 2^100. Adding and taking away 1.5 * 2^23 steps of the grid makes the addition itself round.
template <int kMantissa, int kMinExponent>
HWY_INLINE V to_grid(V v) {
  const D d;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, v);
  const auto exponent = hn::Max(hn::And(bits, hn::Set(di, 0x7f800000)), hn::Set(di, (127 + kMinExponent) << 23));
  const auto shift =
      hn::BitCast(d, hn::Or(hn::Add(exponent, hn::Set(di, (23 - kMantissa) << 23)), hn::Set(di, 0x00400000)));
  const V rounded = hn::Sub(hn::Add(v, shift), shift);
  return hn::Or(rounded, hn::And(v, hn::SignBit(d)));  // -0 stays
}

// Bits of the largest magnitude: for non-negative floats the order of the bits is the order of the values, NaN above
// all.
HWY_INLINE int32_t largest_bits(const float* from, int64_t count) {
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::Set(di, 0x7fffffff);
  auto largest = hn::Zero(di), second = hn::Zero(di);
  int64_t i = 0;
  for (; i + 2 * kWidth <= count; i += 2 * kWidth) {
    largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(D(), from + i)), magnitude));
    second = hn::Max(second, hn::And(hn::BitCast(di, hn::LoadU(D(), from + i + kWidth)), magnitude));
  }
  each_vector(count - i, [&](int64_t j, auto access) HWY_ATTR {
    largest = hn::Max(largest, hn::And(hn::BitCast(di, access.load(from + i + j)), magnitude));
  });
  return hn::GetLane(hn::MaxOfLanes(di, hn::Max(largest, second)));
}

constexpr float power_of_two(int32_t byte) {  // byte - 127, for 0 to 254
  return std::bit_cast<float>(byte == 0 ? 0x00400000 : byte << 23);
}

template <BlockFormat kFormat>
HWY_INLINE void simulate_group(const float* from, float* to, int64_t count) {
  const int32_t amax = std::max(largest_bits(from, count), std::bit_cast<int32_t>(activation_floor(kFormat)));
  if (amax >= 0x7f800000) {  // an infinity or a NaN in the group
    std::fill(to, to + count, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const int32_t byte = scale_byte(amax, scale_rule(kFormat));
  const V scale = hn::Set(D(), power_of_two(byte)), reciprocal = hn::Set(D(), power_of_two(254 - byte));
  each_vector(count, [&](int64_t i, auto access) HWY_ATTR {
    const V v = hn::Mul(access.load(from + i), reciprocal);
    const V rounded = kFormat == BlockFormat::e4m3 ? to_grid<3, -6>(v) : to_grid<1, 0>(v);
    access.store(hn::Mul(rounded, scale), to + i);
  });
}

// A row in groups of `group`, the last one shorter where they do not fill it. `to` may be `from`.
template <BlockFormat kFormat>
HWY_INLINE void simulate_row(const float* from, float* to, int64_t columns, int64_t group) {
  for (int64_t at = 0; at < columns; at += group) {
    simulate_group<kFormat>(from + at, to + at, std::min(group, columns - at));
  }
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
