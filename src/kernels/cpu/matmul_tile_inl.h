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

// The 16 outputs of a panel, from a vector of outputs 0 to 7 and one of outputs 8 to 15 for each half.
template <class Wide = F>
HWY_INLINE void join(const HV (&lower)[kHalves], const HV (&upper)[kHalves], hn::Vec<Wide> (&out)[kVecs]) {
  if constexpr (kLanes == 16) {
    out[0] = hn::Combine(Wide(), upper[0], lower[0]);
  } else {
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      out[h] = lower[h];
      out[h + kHalves] = upper[h];
    }
  }
}

HWY_INLINE HV lower_bf16(hn::Vec<HU> pair) { return hn::BitCast(H(), hn::ShiftLeft<16>(pair)); }
HWY_INLINE HV upper_bf16(hn::Vec<HU> pair) { return hn::BitCast(H(), hn::And(pair, hn::Set(HU(), 0xFFFF0000u))); }

// A source reads the weights of a step of k in groups, one after the other so that few vectors live at a time:
// read<g>(step, out) gives in out[j] the 16 outputs at k g * kGroup + j, as stored times 1 / kUnit, to be multiplied
// with inputs times kInput.
struct PlainSource {
  static constexpr float kUnit = 1, kInput = 1;
};

struct F32Source : PlainSource {
  static constexpr WeightFormat kFormat = WeightFormat::f32;
  static constexpr int kGroup = 1;
  template <int kIndex>
  static HWY_INLINE void read(const uint8_t* step, V (&out)[1][kVecs]) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) out[0][v] = hn::LoadU(F(), reinterpret_cast<const float*>(step) + v * kLanes);
  }
};

struct Bf16Source : PlainSource {
  static constexpr WeightFormat kFormat = WeightFormat::bf16;
  static constexpr int kGroup = 1;
  template <int kIndex>
  static HWY_INLINE void read(const uint8_t* step, V (&out)[1][kVecs]) {
    HV lower[kHalves], upper[kHalves];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      const auto pair = hn::LoadU(HU(), reinterpret_cast<const uint32_t*>(step) + h * kHalfLanes);
      lower[h] = lower_bf16(pair);
      upper[h] = upper_bf16(pair);
    }
    join(lower, upper, out[0]);
  }
};

// s.eeee.mmm on top of 16 bits, shifted right with its sign by 4, is s.0000eeee.mmm0000: a bf16 that is 2^-120 of the
// code's value, subnormal codes included. That factor is taken back from the weight (kExact), or from the input and the
// sum: fewer operations for a single row.
template <bool kExact>
struct E4m3Source {
  static constexpr WeightFormat kFormat = WeightFormat::e4m3;
  static constexpr int kGroup = 1;
  static constexpr float kInput = kExact ? 1 : 0x1p32f, kUnit = kExact ? 1 : 0x1p88f;
  static HWY_INLINE HV scaled(hn::Vec<HU> bits) {
    const HV value = hn::BitCast(H(), hn::And(bits, hn::Set(HU(), 0x87F00000u)));
    if constexpr (kExact) return hn::Mul(value, hn::Set(H(), 0x1p120f));
    return value;
  }
  template <int kIndex>
  static HWY_INLINE void read(const uint8_t* step, V (&out)[1][kVecs]) {
    HV lower[kHalves], upper[kHalves];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      auto codes = hn::LoadU(HI16(), reinterpret_cast<const int16_t*>(step) + h * 2 * kHalfLanes);
      if constexpr (kIndex == 1) codes = hn::ShiftLeft<8>(codes);
      const auto pair = hn::BitCast(HU(), hn::ShiftRight<4>(codes));
      lower[h] = scaled(hn::ShiftLeft<16>(pair));
      upper[h] = scaled(pair);
    }
    join(lower, upper, out[0]);
  }
};

// A code looks up the two bytes of its value in bf16.
struct E2m1Source : PlainSource {
  static constexpr WeightFormat kFormat = WeightFormat::e2m1;
  static constexpr int kGroup = 2;
  static HWY_INLINE hn::Vec<HU8> lookup(const uint8_t (&table)[16], hn::Vec<HU8> codes) {
    return hn::TableLookupBytes(hn::LoadDup128(HU8(), table), codes);
  }
  template <int kIndex>
  static HWY_INLINE void read(const uint8_t* step, V (&out)[2][kVecs]) {
    alignas(16) static constexpr uint8_t kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                       0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    alignas(16) static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                       0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    HV lower[2][kHalves], upper[2][kHalves];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      auto codes = hn::LoadU(HU8(), step + h * 4 * kHalfLanes);
      if constexpr (kIndex == 1) codes = hn::BitCast(HU8(), hn::ShiftRight<4>(hn::BitCast(HU(), codes)));
      codes = hn::And(codes, hn::Set(HU8(), 0x0F));
      const auto upper_byte = lookup(kUpper, codes), lower_byte = lookup(kLower, codes);
      const auto even = hn::BitCast(HU(), hn::InterleaveLower(HU8(), lower_byte, upper_byte));
      const auto odd = hn::BitCast(HU(), hn::InterleaveUpper(HU8(), lower_byte, upper_byte));
      lower[0][h] = lower_bf16(even);
      upper[0][h] = upper_bf16(even);
      lower[1][h] = lower_bf16(odd);
      upper[1][h] = upper_bf16(odd);
    }
    join(lower[0], upper[0], out[0]);
    join(lower[1], upper[1], out[1]);
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

template <class Source, int R, int P, int kIndex>
HWY_INLINE void add_group(const float* const (&x)[R], const uint8_t* step, int64_t stride, int64_t k,
                          V (&sum)[R][P * kVecs]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    V weight[Source::kGroup][kVecs];
    Source::template read<kIndex>(step + p * stride, weight);
#pragma GCC unroll 2
    for (int j = 0; j < Source::kGroup; ++j) {
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

template <class Source, Scales kScales, bool kRound, int R, int P>
HWY_INLINE void store(const V (&sum)[R][P * kVecs], const float* scales, int64_t scale_stride, float* const (&y)[R]) {
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      V factor = hn::Undefined(F());
      if constexpr (kScales == Scales::kPanel) factor = hn::Set(F(), scales[p * scale_stride]);
      if constexpr (kScales == Scales::kOutput) factor = hn::LoadU(F(), scales + p * scale_stride + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        float* out = y[r] + p * kPanel + v * kLanes;
        V result = sum[r][p * kVecs + v];
        if constexpr (Source::kUnit != 1) result = hn::Mul(result, hn::Set(F(), Source::kUnit));
        if constexpr (kScales != Scales::kNone) result = hn::MulAdd(result, factor, hn::LoadU(F(), out));
        if constexpr (kRound) result = round_bf16(result);
        hn::StoreU(result, F(), out);
      }
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
  constexpr int kGroup = Source::kGroup;
  const float* x[R];
  float* y[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    x[r] = tile.x[r];
    y[r] = tile.y[r] + tile.column;
    if (kScales != Scales::kNone && tile.first) std::fill_n(y[r], P * kPanel, 0.0f);
  }
  const uint8_t* step = tile.panel;
  const float* scales = tile.scales;
  const int64_t scale_stride = tile.scale_stride;
  for (int64_t k = tile.begin; k < tile.end;) {
    const int64_t end = kScales == Scales::kNone ? tile.end : std::min(k + kLayout.block_k, tile.end);
    V sum[R][P * kVecs];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int i = 0; i < P * kVecs; ++i) {
        sum[r][i] = kScales != Scales::kNone || tile.first ? hn::Zero(F()) : hn::LoadU(F(), y[r] + i * kLanes);
      }
    }
    for (; k + kStep<Source> <= end; k += kStep<Source>, step += kStepBytes) {
      add_group<Source, R, P, 0>(x, step, tile.panel_stride, k, sum);
      if constexpr (kStep < Source >> kGroup) add_group<Source, R, P, 1>(x, step, tile.panel_stride, k + kGroup, sum);
    }
    if constexpr (kStep < Source >> kGroup) {  // half a step: K is even where a group has two
      if (k < end) add_group<Source, R, P, 0>(x, step, tile.panel_stride, k, sum);
    }
    k = end;
    if (tile.round && tile.last && end == tile.end) {
      store<Source, kScales, true, R, P>(sum, scales, scale_stride, y);
    } else {
      store<Source, kScales, false, R, P>(sum, scales, scale_stride, y);
    }
    scales += kLayout.scales_per_block;
  }
}

template <class Source, int kIndex>
HWY_INLINE void decode_group(const uint8_t* step, float* out) {
  V weight[Source::kGroup][kVecs];
  Source::template read<kIndex>(step, weight);
#pragma GCC unroll 2
  for (int j = 0; j < Source::kGroup; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) hn::Store(weight[j][v], F(), out + j * kPanel + v * kLanes);
  }
}

// `count` k of one panel as f32 [k][16], and the rest of the last step.
template <class Source>
HWY_NOINLINE void decode(const uint8_t* step, int64_t count, float* out) {
  constexpr int64_t kStepBytes = panel_layout(Source::kFormat).step_bytes;
  for (int64_t k = 0; k < count; k += kStep<Source>, step += kStepBytes, out += kStep<Source> * kPanel) {
    decode_group<Source, 0>(step, out);
    if constexpr (kStep < Source >> Source::kGroup) decode_group<Source, 1>(step, out + Source::kGroup * kPanel);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
