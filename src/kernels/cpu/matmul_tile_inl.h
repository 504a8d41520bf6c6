// The inner kernels of multiply(), compiled once for each instruction set (include guard as Highway asks for): how
// panels become vectors, and a tile of R rows times P panels whose sums stay in registers.
#if defined(KERNELS_CPU_MATMUL_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_MATMUL_TILE_INL_H
#undef KERNELS_CPU_MATMUL_TILE_INL_H
#else
#define KERNELS_CPU_MATMUL_TILE_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/pack.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_NATIVE_FMA

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, kPanel>;
using U = hn::RebindToUnsigned<F>;
using V = hn::Vec<F>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));
constexpr int kVecs = static_cast<int>(kPanel) / kLanes;  // vectors of a panel's 16 outputs

// Codes are decoded in vectors of at most eight lanes. Each 32-bit lane of them holds outputs o (lower half) and o + 8.
using H = hn::CappedTag<float, 8>;
using HU = hn::RebindToUnsigned<H>;
using HI = hn::RebindToSigned<H>;
using HI16 = hn::Repartition<int16_t, H>;
using HU8 = hn::Repartition<uint8_t, H>;
using HV = hn::Vec<H>;
constexpr int kHalfLanes = static_cast<int>(hn::MaxLanes(H()));
constexpr int kHalves = 8 / kHalfLanes;  // vectors of eight outputs

// Puts vector `half` of outputs 0 to 7 and its counterpart of outputs 8 to 15 where a panel's vectors have them.
template <int kHalf, class Wide = F>
HWY_INLINE void place(HV lower, HV upper, hn::Vec<Wide> (&out)[kVecs]) {
  if constexpr (kLanes == 16) {
    out[0] = hn::Combine(Wide(), upper, lower);
  } else {
    out[kHalf] = lower;
    out[kHalf + kHalves] = upper;
  }
}

HWY_INLINE HV lower_bf16(hn::Vec<HU> pair) { return hn::BitCast(H(), hn::ShiftLeft<16>(pair)); }
HWY_INLINE HV upper_bf16(hn::Vec<HU> pair) { return hn::BitCast(H(), hn::And(pair, hn::Set(HU(), 0xFFFF0000u))); }

// A source gives the weights of one step: out[j], the 16 outputs at k j of it, as stored times 1 / kUnit, to be
// multiplied with inputs times kInput.
struct PlainSource {
  static constexpr float kUnit = 1, kInput = 1;
};

struct F32Source : PlainSource {
  static constexpr WeightFormat kFormat = WeightFormat::f32;
  static HWY_INLINE void at(const uint8_t* step, V (&out)[1][kVecs]) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) out[0][v] = hn::LoadU(F(), reinterpret_cast<const float*>(step) + v * kLanes);
  }
};

struct Bf16Source : PlainSource {
  static constexpr WeightFormat kFormat = WeightFormat::bf16;
  template <int kHalf>
  static HWY_INLINE void half(const uint8_t* step, V (&out)[1][kVecs]) {
    const auto pair = hn::LoadU(HU(), reinterpret_cast<const uint32_t*>(step) + kHalf * kHalfLanes);
    place<kHalf>(lower_bf16(pair), upper_bf16(pair), out[0]);
  }
  static HWY_INLINE void at(const uint8_t* step, V (&out)[1][kVecs]) {
    half<0>(step, out);
    if constexpr (kHalves == 2) half<1>(step, out);
  }
};

// s.eeee.mmm on top of 16 bits, shifted right with its sign by 4, is s.0000eeee.mmm0000: a bf16 that is 2^-120 of the
// code's value, subnormal codes included.
template <bool kExact>
struct E4m3Source {
  static constexpr WeightFormat kFormat = WeightFormat::e4m3;
  static constexpr float kInput = kExact ? 1 : 0x1p32f, kUnit = kExact ? 1 : 0x1p88f;
  static HWY_INLINE HV scaled(hn::Vec<HU> bits) {
    const HV value = hn::BitCast(H(), hn::And(bits, hn::Set(HU(), 0x87F00000u)));
    if constexpr (kExact) return hn::Mul(value, hn::Set(H(), 0x1p120f));
    return value;
  }
  template <int kHalf>
  static HWY_INLINE void half(const uint8_t* step, V (&out)[2][kVecs]) {
    const auto codes = hn::LoadU(HI16(), reinterpret_cast<const int16_t*>(step) + kHalf * 2 * kHalfLanes);
    const auto first = hn::BitCast(HU(), hn::ShiftRight<4>(codes));
    const auto second = hn::BitCast(HU(), hn::ShiftRight<4>(hn::ShiftLeft<8>(codes)));
    place<kHalf>(scaled(hn::ShiftLeft<16>(first)), scaled(first), out[0]);
    place<kHalf>(scaled(hn::ShiftLeft<16>(second)), scaled(second), out[1]);
  }
  static HWY_INLINE void at(const uint8_t* step, V (&out)[2][kVecs]) {
    half<0>(step, out);
    if constexpr (kHalves == 2) half<1>(step, out);
  }
};

// A code looks up the two bytes of its value in bf16.
struct E2m1Source : PlainSource {
  static constexpr WeightFormat kFormat = WeightFormat::e2m1;
  static HWY_INLINE hn::Vec<HU8> lookup(hn::Vec<HU8> codes, const uint8_t (&table)[16]) {
    return hn::TableLookupBytes(hn::LoadDup128(HU8(), table), codes);
  }
  template <int kHalf>
  static HWY_INLINE void two(hn::Vec<HU8> codes, V (&first)[kVecs], V (&second)[kVecs]) {
    alignas(16) static constexpr uint8_t kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                       0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    alignas(16) static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                       0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    const auto upper = lookup(codes, kUpper), lower = lookup(codes, kLower);
    const auto pair = hn::BitCast(HU(), hn::InterleaveLower(HU8(), lower, upper));
    const auto next = hn::BitCast(HU(), hn::InterleaveUpper(HU8(), lower, upper));
    place<kHalf>(lower_bf16(pair), upper_bf16(pair), first);
    place<kHalf>(lower_bf16(next), upper_bf16(next), second);
  }
  template <int kHalf>
  static HWY_INLINE void half(const uint8_t* step, V (&out)[4][kVecs]) {
    const auto codes = hn::LoadU(HU8(), step + kHalf * 4 * kHalfLanes);
    const auto nibble = hn::Set(HU8(), 0x0F);
    const auto high = hn::BitCast(HU8(), hn::ShiftRight<4>(hn::BitCast(HI16(), codes)));
    two<kHalf>(hn::And(codes, nibble), out[0], out[1]);
    two<kHalf>(hn::And(high, nibble), out[2], out[3]);
  }
  static HWY_INLINE void at(const uint8_t* step, V (&out)[4][kVecs]) {
    half<0>(step, out);
    if constexpr (kHalves == 2) half<1>(step, out);
  }
};

template <class Source>
constexpr int kStep = static_cast<int>(panel_layout(Source::kFormat).step_k);

HWY_INLINE V round_bf16(V value) {
  const auto bits = hn::BitCast(U(), value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U(), 1));
  const auto rounded = hn::And(hn::Add(bits, hn::Add(odd, hn::Set(U(), 0x7FFF))), hn::Set(U(), 0xFFFF0000u));
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(F(), hn::Set(U(), 0x7FC00000u)), hn::BitCast(F(), rounded));
}

// R rows times P panels over k of [begin, end).
struct Tile {
  const float* const* x = nullptr;  // R rows, from k 0
  float* const* y = nullptr;        // R rows, of outputs from `column` on
  int64_t column = 0;
  const uint8_t* panel = nullptr;  // at k `begin`, a multiple of the step
  int64_t panel_stride = 0;        // bytes
  int64_t begin = 0, end = 0;
  bool first = true, last = true;  // whether it has the product's first k, its last
  bool round = false;              // results, once the last k is in
  const float* scales = nullptr;   // of the block at `begin`
  int64_t scale_stride = 0;        // between panels
};

template <class Source, int R, int P, int kCount>
HWY_INLINE void add_step(const float* const (&x)[R], const uint8_t* step, int64_t stride, int64_t k,
                         V (&sum)[R][P * kVecs]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    V weight[kStep<Source>][kVecs];
    Source::at(step + p * stride, weight);
#pragma GCC unroll 4
    for (int j = 0; j < kCount; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        V input = hn::Set(F(), x[r][k + j]);
        if constexpr (Source::kInput != 1) input = hn::Mul(input, hn::Set(F(), Source::kInput));
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) {
          sum[r][p * kVecs + v] = hn::MulAdd(input, weight[j][v], sum[r][p * kVecs + v]);
        }
      }
    }
  }
}

// The scales of one block of a quantised format, or kNone.
enum class Scales { kNone, kPanel, kOutput };

template <Scales kScales, int R, int P>
HWY_INLINE void store(const Tile& tile, const float* scales, float unit, bool first, bool round,
                      V (&sum)[R][P * kVecs]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < P * kVecs; ++i) {
      float* y = tile.y[r] + tile.column + i * kLanes;
      V result = sum[r][i];
      if constexpr (kScales != Scales::kNone) {
        const float* scale = scales + i / kVecs * tile.scale_stride;
        const V factor =
            kScales == Scales::kPanel ? hn::Set(F(), scale[0]) : hn::LoadU(F(), scale + i % kVecs * kLanes);
        if (unit != 1) result = hn::Mul(result, hn::Set(F(), unit));
        result = hn::MulAdd(result, factor, first ? hn::Zero(F()) : hn::LoadU(F(), y));
      }
      if (round) result = round_bf16(result);
      hn::StoreU(result, F(), y);
    }
  }
}

// kFormat: whose blocks and scales count; the source may be its decoded weights.
template <class Source, WeightFormat kFormat, int R, int P>
HWY_NOINLINE void multiply_tile(const Tile& tile) {
  constexpr PanelLayout kLayout = panel_layout(kFormat);
  constexpr Scales kScales = kLayout.block_k == 0            ? Scales::kNone
                             : kLayout.scales_per_block == 1 ? Scales::kPanel
                                                             : Scales::kOutput;
  constexpr int64_t kStepBytes = panel_layout(Source::kFormat).step_bytes;
  const float* x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = tile.x[r];
  const uint8_t* step = tile.panel;
  const float* scales = tile.scales;
  for (int64_t k = tile.begin; k < tile.end;) {
    const bool first = tile.first && k == tile.begin;
    const int64_t end = kScales == Scales::kNone ? tile.end : std::min(k + kLayout.block_k, tile.end);
    V sum[R][P * kVecs];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int i = 0; i < P * kVecs; ++i) {
        sum[r][i] =
            kScales != Scales::kNone || first ? hn::Zero(F()) : hn::LoadU(F(), tile.y[r] + tile.column + i * kLanes);
      }
    }
    for (; k + kStep<Source> <= end; k += kStep<Source>, step += kStepBytes) {
      add_step<Source, R, P, kStep<Source>>(x, step, tile.panel_stride, k, sum);
    }
    if constexpr (kStep < Source >> 1) {  // K is even for the format with a step of 4
      if (k < end) add_step<Source, R, P, kStep<Source> / 2>(x, step, tile.panel_stride, k, sum);
    }
    k = end;
    store<kScales, R, P>(tile, scales, Source::kUnit, first, tile.round && tile.last && end == tile.end, sum);
    scales += kLayout.scales_per_block;
  }
}

// Weights of [begin, end) of one panel as f32 [k][16].
template <class Source>
HWY_NOINLINE void decode(const uint8_t* step, int64_t count, float* out) {
  constexpr int64_t kStepBytes = panel_layout(Source::kFormat).step_bytes;
  for (int64_t k = 0; k < count; k += kStep<Source>, step += kStepBytes) {
    V weight[kStep<Source>][kVecs];
    Source::at(step, weight);
#pragma GCC unroll 4
    for (int j = 0; j < kStep<Source>; ++j) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) hn::Store(weight[j][v], F(), out + (k + j) * kPanel + v * kLanes);
    }
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
