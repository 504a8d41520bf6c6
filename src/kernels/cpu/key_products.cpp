// Register tiles: heads of a query times keys (vectors over heads), and key rows weighted (vectors over the row).
#include "kernels/cpu/key_products.h"

#include <algorithm>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/key_products.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// ---- transpose

// Four rows of four. Unqualified: the baseline, a single lane, has nothing to interleave.
template <class D>
void transpose_square(D d, const float* rows, int64_t row_stride, float* out, int64_t out_stride) {
  if constexpr (hn::MaxLanes(d) == 4) {
    const hn::RepartitionToWide<D> wide;
    const auto a = hn::LoadU(d, rows), b = hn::LoadU(d, rows + row_stride);
    const auto c = hn::LoadU(d, rows + 2 * row_stride), e = hn::LoadU(d, rows + 3 * row_stride);
    const auto ab_low = hn::BitCast(wide, InterleaveLower(d, a, b)),
               ab_high = hn::BitCast(wide, InterleaveUpper(d, a, b)),
               ce_low = hn::BitCast(wide, InterleaveLower(d, c, e)),
               ce_high = hn::BitCast(wide, InterleaveUpper(d, c, e));
    hn::StoreU(hn::BitCast(d, InterleaveLower(wide, ab_low, ce_low)), d, out);
    hn::StoreU(hn::BitCast(d, InterleaveUpper(wide, ab_low, ce_low)), d, out + out_stride);
    hn::StoreU(hn::BitCast(d, InterleaveLower(wide, ab_high, ce_high)), d, out + 2 * out_stride);
    hn::StoreU(hn::BitCast(d, InterleaveUpper(wide, ab_high, ce_high)), d, out + 3 * out_stride);
  } else {
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 4; ++j) out[j * out_stride + i] = rows[i * row_stride + j];
    }
  }
}

void TransposeHeads(const float* rows_HK, int64_t num_heads, int64_t dim, float* out_KP) {
  const int64_t width = padded_heads(num_heads);
  if (num_heads < width) std::fill_n(out_KP, dim * width, 0.0f);
  const hn::CappedTag<float, 4> d;
  int64_t h = 0;
  for (; h + 4 <= num_heads; h += 4) {
    const float* rows = rows_HK + h * dim;
    int64_t k = 0;
    for (; k + 4 <= dim; k += 4) transpose_square(d, rows + k, dim, out_KP + k * width + h, width);
    for (; k < dim; ++k) {
      for (int64_t i = 0; i < 4; ++i) out_KP[k * width + h + i] = rows[i * dim + k];
    }
  }
  for (; h < num_heads; ++h) {
    for (int64_t k = 0; k < dim; ++k) out_KP[k * width + h] = rows_HK[h * dim + k];
  }
}

// ---- products of heads and keys

template <int kKeys, int kVectors, class D>
void dot_tile(D d, const KeyDots& dots, int64_t width, int64_t first_key, int64_t first_head) {
  using V = hn::Vec<D>;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  const float* keys[kKeys];
  V sum[kKeys][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kKeys; ++i) {
    keys[i] = dots.keys[first_key + i];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  const float* query = dots.query_KP + first_head;
  for (int64_t k = 0; k < dots.dim; ++k, query += width) {
    V heads[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) heads[v] = hn::LoadU(d, query + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kKeys; ++i) {
      const V key = hn::Set(d, keys[i][k]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(key, heads[v], sum[i][v]);
    }
  }
  const V scale = hn::Set(d, dots.scale);
#pragma GCC unroll 8
  for (int i = 0; i < kKeys; ++i) {
    float* out = dots.out + (first_key + i) * dots.out_stride + first_head;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::Mul(sum[i][v], scale), d, out + v * kLanes);
  }
}

template <class D>
void dots_by_vector(D d, const KeyDots& dots) {
  constexpr int64_t kLanes = hn::MaxLanes(D());
  const int64_t width = padded_heads(dots.num_heads), count = dots.num_keys;
  int64_t n = 0;
  const auto heads = [&](auto pair, auto single) {
    int64_t h = 0;
    for (; h + kLanes < dots.num_heads; h += 2 * kLanes) pair(h);
    if (h < dots.num_heads) single(h);
  };
  if (dots.num_heads <= kLanes) {
    for (; n + 8 <= count; n += 8) dot_tile<8, 1>(d, dots, width, n, 0);
  }
  for (; n + 6 <= count; n += 6) {
    heads([&](int64_t h) { dot_tile<6, 2>(d, dots, width, n, h); },
          [&](int64_t h) { dot_tile<6, 1>(d, dots, width, n, h); });
  }
  for (; n + 2 <= count; n += 2) {
    heads([&](int64_t h) { dot_tile<2, 2>(d, dots, width, n, h); },
          [&](int64_t h) { dot_tile<2, 1>(d, dots, width, n, h); });
  }
  for (; n < count; ++n) {
    heads([&](int64_t h) { dot_tile<1, 2>(d, dots, width, n, h); },
          [&](int64_t h) { dot_tile<1, 1>(d, dots, width, n, h); });
  }
}

void DotKeys(const KeyDots& dots) {
  if (padded_heads(dots.num_heads) % 16 == 0) return dots_by_vector(hn::CappedTag<float, 16>(), dots);
  dots_by_vector(hn::CappedTag<float, 8>(), dots);
}

// ---- key rows, weighted

struct KeyRange {
  int64_t begin, end;
};

template <int kHeads, int kVectors, class D>
void mix_tile(D d, const KeyMix& mix, KeyRange range, int64_t head, int64_t k) {
  using V = hn::Vec<D>;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  V sum[kHeads][kVectors];
  float* out = mix.out_HK + head * mix.dim + k;
#pragma GCC unroll 4
  for (int i = 0; i < kHeads; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sum[i][v] = range.begin == 0 ? hn::Zero(d) : hn::LoadU(d, out + i * mix.dim + v * kLanes);
  }
  const float* weight = mix.weight + range.begin * mix.weight_stride + head;
  for (int64_t n = range.begin; n < range.end; ++n, weight += mix.weight_stride) {
    V row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, mix.keys[n] + k + v * kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < kHeads; ++i) {
      const V w = hn::Set(d, weight[i]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(w, row[v], sum[i][v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kHeads; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[i][v], d, out + i * mix.dim + v * kLanes);
  }
}

template <int kVectors, class D>
void mix_heads(D d, const KeyMix& mix, KeyRange range, int64_t k) {
  int64_t h = 0;
  for (; h + 4 <= mix.num_heads; h += 4) mix_tile<4, kVectors>(d, mix, range, h, k);
  for (; h + 2 <= mix.num_heads; h += 2) mix_tile<2, kVectors>(d, mix, range, h, k);
  if (h < mix.num_heads) mix_tile<1, kVectors>(d, mix, range, h, k);
}

void prefetch_row(const float* row, int64_t dim) {
  for (int64_t i = 0; i < dim; i += 16) hwy::Prefetch(row + i);
}

// Keys in blocks that stay in the nearer caches while all heads pass over them. The next block is asked for in time:
// columns of a block are read with a stride, which the hardware does not foresee.
void MixKeys(const KeyMix& mix) {
  constexpr int64_t kBlockFloats = 1 << 14;
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::MaxLanes(d));
  if (mix.num_keys == 0) std::fill_n(mix.out_HK, mix.num_heads * mix.dim, 0.0f);
  const int64_t block = std::max<int64_t>(16, kBlockFloats / mix.dim);
  for (int64_t n = 0; n < mix.num_keys; n += block) {
    const KeyRange range{n, std::min(n + block, mix.num_keys)};
    int64_t k = 0, next = range.end;
    for (; k + 2 * lanes <= mix.dim; k += 2 * lanes) {
      if (next < std::min(range.end + block, mix.num_keys)) prefetch_row(mix.keys[next++], mix.dim);
      mix_heads<2>(d, mix, range, k);
    }
    for (; k + lanes <= mix.dim; k += lanes) mix_heads<1>(d, mix, range, k);
    for (; k < mix.dim; ++k) mix_heads<1>(one, mix, range, k);
  }
}

// ---- gradients of key rows

template <int kKeys, int kVectors, class D>
void gradient_tile(D d, const KeyGradients& g, int64_t first_key, int64_t k) {
  using V = hn::Vec<D>;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  V sum[kKeys][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::LoadU(d, g.rows[first_key + i] + k + v * kLanes);
  }
  const float *query = g.query_HK + k, *dout = g.dout_HK + k;
  const float *dscore = g.dscore + first_key * g.stride, *weight = g.weight + first_key * g.stride;
  for (int64_t h = 0; h < g.num_heads; ++h, query += g.dim, dout += g.dim) {
    V q[kVectors], o[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      q[v] = hn::LoadU(d, query + v * kLanes);
      o[v] = hn::LoadU(d, dout + v * kLanes);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      const V ds = hn::Set(d, dscore[i * g.stride + h]), w = hn::Set(d, weight[i * g.stride + h]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(w, o[v], hn::MulAdd(ds, q[v], sum[i][v]));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[i][v], d, g.rows[first_key + i] + k + v * kLanes);
  }
}

template <int kVectors, class D>
void gradient_rows(D d, const KeyGradients& g, int64_t k) {
  int64_t n = 0;
  for (; n + 4 <= g.num_keys; n += 4) gradient_tile<4, kVectors>(d, g, n, k);
  for (; n < g.num_keys; ++n) gradient_tile<1, kVectors>(d, g, n, k);
}

void AddKeyGradients(const KeyGradients& g) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::MaxLanes(d));
  int64_t k = 0;
  for (; k + 2 * lanes <= g.dim; k += 2 * lanes) gradient_rows<2>(d, g, k);
  for (; k + lanes <= g.dim; k += lanes) gradient_rows<1>(d, g, k);
  for (; k < g.dim; ++k) gradient_rows<1>(one, g, k);
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(TransposeHeads);
HWY_EXPORT(DotKeys);
HWY_EXPORT(MixKeys);
HWY_EXPORT(AddKeyGradients);

void transpose_heads(const float* rows_HK, int64_t num_heads, int64_t dim, float* out_KP) {
  HWY_DYNAMIC_DISPATCH(TransposeHeads)(rows_HK, num_heads, dim, out_KP);
}
void key_dots(const KeyDots& dots) { HWY_DYNAMIC_DISPATCH(DotKeys)(dots); }
void key_mix(const KeyMix& mix) { HWY_DYNAMIC_DISPATCH(MixKeys)(mix); }
void add_key_gradients(const KeyGradients& gradients) { HWY_DYNAMIC_DISPATCH(AddKeyGradients)(gradients); }

}  // namespace kernels::cpu
#endif
