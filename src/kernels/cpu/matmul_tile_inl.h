// The inner kernels of multiply(), compiled once for each instruction set (include guard as Highway asks for): how
// panels become vectors, and a tile of R rows times P panels whose sums stay in registers.
#if defined(KERNELS_CPU_MATMUL_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_MATMUL_TILE_INL_H
#undef KERNELS_CPU_MATMUL_TILE_INL_H
#else
#define KERNELS_CPU_MATMUL_TILE_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

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

// A source reads the weights of a step of k in groups: load<g>(step, v) reads for the outputs of vector v the kGroup k
// of group g, value<j>() gives the j-th of them, as stored times 1 / kUnit.
struct F32Source {
  static constexpr WeightFormat kFormat = WeightFormat::f32;
  static constexpr int kGroup = 1;
  static constexpr float kUnit = 1;
  using Raw = V;
  template <int kIndex>
  static HWY_INLINE Raw load(const uint8_t* step, int v) {
    return hn::LoadU(F(), reinterpret_cast<const float*>(step) + v * kLanes);
  }
  template <int j>
  static HWY_INLINE V value(Raw raw) {
    return raw;
  }
};

// A bf16 in the lower (j 0) or the upper half of each lane.
template <int j>
HWY_INLINE V half_bf16(hn::Vec<U> pair) {
  return hn::BitCast(F(), j == 0 ? hn::ShiftLeft<16>(pair) : hn::And(pair, hn::Set(U(), 0xFFFF0000u)));
}

struct Bf16Source {
  static constexpr WeightFormat kFormat = WeightFormat::bf16;
  static constexpr int kGroup = 2;
  static constexpr float kUnit = 1;
  using Raw = hn::Vec<U>;
  template <int kIndex>
  static HWY_INLINE Raw load(const uint8_t* step, int v) {
    return hn::LoadU(U(), reinterpret_cast<const uint32_t*>(step) + v * kLanes);
  }
  template <int j>
  static HWY_INLINE V value(Raw raw) {
    return half_bf16<j>(raw);
  }
};

// s.eeee.mmm shifted right by one, with its sign, from the top of 16 bits is s.0eeee.mmm0000000: an f16 that is 2^-8 of
// the code's value, subnormal codes included. (As bits of an f32 they would be subnormal too, and each product with one
// stalls an Intel core.)
struct E4m3Source {
  static constexpr WeightFormat kFormat = WeightFormat::e4m3;
  static constexpr int kGroup = 2;
  static constexpr float kUnit = 0x1p8f;
  using I16 = hn::Rebind<int16_t, F>;
  using F16 = hn::Rebind<hwy::float16_t, F>;
  using Raw = hn::Vec<I16>;
  template <int kIndex>
  static HWY_INLINE Raw load(const uint8_t* step, int v) {
    return hn::LoadU(I16(), reinterpret_cast<const int16_t*>(step) + v * kLanes);
  }
  template <int j>
  static HWY_INLINE V value(Raw raw) {
    if constexpr (j == 1) raw = hn::ShiftLeft<8>(raw);
    const auto bits = hn::And(hn::ShiftRight<1>(raw), hn::Set(I16(), static_cast<int16_t>(0xBF80)));
    return hn::PromoteTo(F(), hn::BitCast(F16(), bits));
  }
};

// A code looks up the two bytes of its value in bf16.
struct E2m1Source {
  static constexpr WeightFormat kFormat = WeightFormat::e2m1;
  static constexpr int kGroup = 4;
  static constexpr float kUnit = 1;
  using U8 = hn::Repartition<uint8_t, F>;
  struct Raw {
    hn::Vec<U> k01, k23;
  };
  static HWY_INLINE hn::Vec<U8> lookup(const uint8_t (&table)[16], hn::Vec<U8> codes) {
    return hn::TableLookupBytes(hn::LoadDup128(U8(), table), codes);
  }
  template <int kIndex>
  static HWY_INLINE Raw load(const uint8_t* step, int v) {
    alignas(16) static constexpr uint8_t kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                       0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    alignas(16) static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                       0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    auto codes = hn::LoadU(U8(), step + v * 4 * kLanes);
    if constexpr (kIndex == 1) codes = hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U(), codes)));
    codes = hn::And(codes, hn::Set(U8(), 0x0F));
    const auto upper = lookup(kUpper, codes), lower = lookup(kLower, codes);
    return {hn::BitCast(U(), hn::InterleaveLower(U8(), lower, upper)),
            hn::BitCast(U(), hn::InterleaveUpper(U8(), lower, upper))};
  }
  template <int j>
  static HWY_INLINE V value(const Raw& raw) {
    return half_bf16<j % 2>(j < 2 ? raw.k01 : raw.k23);
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

// Rows times panels over k of [begin, end), of which a tile is a part. Never copied: a wide load of fields just written
// one by one waits until all stores before them, results among them, have reached the cache.
struct Block {
  const float* const* x = nullptr;  // rows, from k 0
  float* const* y = nullptr;        // rows, of outputs from `column` on
  int64_t column = 0;
  const uint8_t* panels = nullptr;  // at k `begin`, a multiple of the step
  int64_t panel_stride = 0;         // bytes
  int64_t begin = 0, end = 0;
  bool first = true, last = true;  // whether it has the product's first k, its last
  bool round = false;              // results, once the last k is in
  const float* scales = nullptr;   // of the block of k at `begin`
  int64_t scale_stride = 0;        // between panels
};

// The j-th k of a group, for R rows and P panels.
template <class Source, int R, int P, int j>
HWY_INLINE void add_k(const typename Source::Raw (&raw)[P][kVecs], const float* const (&x)[R], int64_t k,
                      V (*sum)[kVecs], int panels) {
  V weight[P][kVecs];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) weight[p][v] = Source::template value<j>(raw[p][v]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const V input = hn::Set(F(), x[r][k + j]);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        sum[r * panels + p][v] = hn::MulAdd(input, weight[p][v], sum[r * panels + p][v]);
      }
    }
  }
}

// Group kIndex of a step. Panels are read together, but for a single row, whose tile is wide.
template <class Source, int R, int P, int kIndex>
HWY_INLINE void add_group(const float* const (&x)[R], const uint8_t* step, int64_t stride, int64_t k,
                          V (&sum)[R * P][kVecs]) {
  constexpr int kAtOnce = R == 1 ? 1 : P;
#pragma GCC unroll 8
  for (int p = 0; p < P; p += kAtOnce) {
    typename Source::Raw raw[kAtOnce][kVecs];
#pragma GCC unroll 8
    for (int i = 0; i < kAtOnce; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) raw[i][v] = Source::template load<kIndex>(step + (p + i) * stride, v);
    }
    add_k<Source, R, kAtOnce, 0>(raw, x, k, sum + p, P);
    if constexpr (Source::kGroup > 1) add_k<Source, R, kAtOnce, 1>(raw, x, k, sum + p, P);
    if constexpr (Source::kGroup > 2) {
      add_k<Source, R, kAtOnce, 2>(raw, x, k, sum + p, P);
      add_k<Source, R, kAtOnce, 3>(raw, x, k, sum + p, P);
    }
  }
}

template <class Source, int kIndex>
HWY_INLINE void decode_group(const uint8_t* step, float* out) {
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    const auto raw = Source::template load<kIndex>(step, v);
    const auto store = [&](auto j) HWY_ATTR {
      constexpr int kJ = decltype(j)::value;
      V value = Source::template value<kJ>(raw);
      if constexpr (Source::kUnit != 1) value = hn::Mul(value, hn::Set(F(), Source::kUnit));
      hn::Store(value, F(), out + kJ * kPanel + v * kLanes);
    };
    store(std::integral_constant<int, 0>());
    if constexpr (Source::kGroup > 1) store(std::integral_constant<int, 1>());
    if constexpr (Source::kGroup > 2) {
      store(std::integral_constant<int, 2>());
      store(std::integral_constant<int, 3>());
    }
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

// The `count` k of a step that is not whole, decoded first.
template <class Source, int R, int P>
HWY_INLINE void add_rest(const float* const (&x)[R], const uint8_t* step, int64_t stride, int64_t k, int64_t count,
                         V (&sum)[R * P][kVecs]) {
  alignas(64) float values[P][kStep<Source> * kPanel];
  for (int p = 0; p < P; ++p) decode<Source>(step + p * stride, kStep<Source>, values[p]);
  for (int64_t j = 0; j < count; ++j) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V input = hn::Set(F(), x[r][k + j] / Source::kUnit);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) {
          const V weight = hn::Load(F(), values[p] + j * kPanel + v * kLanes);
          sum[r * P + p][v] = hn::MulAdd(input, weight, sum[r * P + p][v]);
        }
      }
    }
  }
}

// The scales of one block of a quantised format, or kNone.
enum class Scales { kNone, kPanel, kOutput };

template <class Source, Scales kScales, bool kRound, int R, int P>
HWY_INLINE void store(const V (&sum)[R * P][kVecs], const float* scales, int64_t scale_stride, float* const (&y)[R]) {
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
        V result = sum[r * P + p][v];
        if constexpr (Source::kUnit != 1) result = hn::Mul(result, hn::Set(F(), Source::kUnit));
        if constexpr (kScales != Scales::kNone) result = hn::MulAdd(result, factor, hn::LoadU(F(), out));
        if constexpr (kRound) result = round_bf16(result);
        hn::StoreU(result, F(), out);
      }
    }
  }
}

// R rows from `row` on, P panels from `panel` on. kFormat: whose blocks and scales count; the source may be its decoded
// weights.
template <class Source, WeightFormat kFormat, int R, int P>
HWY_NOINLINE void multiply_tile(const Block& block, int64_t row, int64_t panel) {
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
    x[r] = block.x[row + r];
    y[r] = block.y[row + r] + block.column + panel * kPanel;
    if (kScales != Scales::kNone && block.first) std::fill_n(y[r], P * kPanel, 0.0f);
  }
  const uint8_t* step = block.panels + panel * block.panel_stride;
  const int64_t scale_stride = block.scale_stride;
  const float* scales = kScales == Scales::kNone ? nullptr : block.scales + panel * scale_stride;
  for (int64_t k = block.begin; k < block.end;) {
    const int64_t end = kScales == Scales::kNone ? block.end : std::min(k + kLayout.block_k, block.end);
    V sum[R * P][kVecs];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) {
          sum[r * P + p][v] =
              kScales != Scales::kNone || block.first ? hn::Zero(F()) : hn::LoadU(F(), y[r] + p * kPanel + v * kLanes);
        }
      }
    }
    for (; k + kStep<Source> <= end; k += kStep<Source>, step += kStepBytes) {
      // Few rows wait for memory, and decoding hides from the core what it will read next.
      if constexpr (R <= 2 && Source::kFormat != WeightFormat::f32) {
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) hwy::Prefetch(step + p * block.panel_stride + 1024);
      }
      add_group<Source, R, P, 0>(x, step, block.panel_stride, k, sum);
      if constexpr (kStep < Source >> kGroup) add_group<Source, R, P, 1>(x, step, block.panel_stride, k + kGroup, sum);
    }
    if constexpr (kStep < Source >> 1) {
      if (k < end) add_rest<Source, R, P>(x, step, block.panel_stride, k, end - k, sum);
    }
    k = end;
    if (block.round && block.last && end == block.end) {
      store<Source, kScales, true, R, P>(sum, scales, scale_stride, y);
    } else {
      store<Source, kScales, false, R, P>(sum, scales, scale_stride, y);
    }
    scales += kLayout.scales_per_block;
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
