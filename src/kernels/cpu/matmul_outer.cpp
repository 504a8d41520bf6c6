// add_outer(): gradients of weights. The output is cut into regions; over blocks of rows, the region's columns of dy
// and x are copied into panels, then multiplied in tiles whose sums stay in registers over the block and in the output
// between blocks.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_outer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/matmul.h"

#ifndef KERNELS_CPU_MATMUL_OUTER_REGION
#define KERNELS_CPU_MATMUL_OUTER_REGION
namespace kernels::cpu {

inline constexpr int64_t kBlockRows = 256;  // rows that are summed in registers

// Outputs [n, n + num_n) x [k, k + num_k).
struct Region {
  int64_t n = 0, num_n = 0, k = 0, num_k = 0;
};

}  // namespace kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_NATIVE_FMA
namespace hn = hwy::HWY_NAMESPACE;
using F = hn::CappedTag<float, 16>;
using V = hn::Vec<F>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));
constexpr int64_t kTileN = kLanes == 16 ? 8 : 6, kTileK = kLanes == 16 ? 32 : 16;
constexpr int kVecs = static_cast<int>(kTileK) / kLanes;

// out[kTileN][kTileK] += sum over rows of dy[row][kTileN] * x[row][kTileK]; out_stride in floats.
HWY_NOINLINE void add_tile(const float* dy, const float* x, int64_t rows, float* out, int64_t out_stride, bool zero) {
  constexpr int R = static_cast<int>(kTileN);
  V sum[R * kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      sum[r * kVecs + v] = zero ? hn::Zero(F()) : hn::LoadU(F(), out + r * out_stride + v * kLanes);
    }
  }
  for (int64_t row = 0; row < rows; ++row, dy += kTileN, x += kTileK) {
    V value[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) value[v] = hn::LoadU(F(), x + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V factor = hn::Set(F(), dy[r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[r * kVecs + v] = hn::MulAdd(factor, value[v], sum[r * kVecs + v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[r * kVecs + v], F(), out + r * out_stride + v * kLanes);
  }
}
#else
constexpr int64_t kTileN = 6, kTileK = 16;
void add_tile(const float* dy, const float* x, int64_t rows, float* out, int64_t out_stride, bool zero) {
  for (int64_t n = 0; n < kTileN; ++n) {
    for (int64_t k = 0; k < kTileK; ++k) {
      float sum = zero ? 0 : out[n * out_stride + k];
      for (int64_t row = 0; row < rows; ++row) sum = std::fma(dy[row * kTileN + n], x[row * kTileK + k], sum);
      out[n * out_stride + k] = sum;
    }
  }
}
#endif

// A tile at the edge goes through a full one beside it.
void add_edge_tile(const float* dy, const float* x, int64_t rows, float* out, int64_t out_stride, bool zero,
                   int64_t num_n, int64_t num_k) {
  float full[kTileN * kTileK] = {};
  if (!zero) {
    for (int64_t n = 0; n < num_n; ++n) std::copy_n(out + n * out_stride, num_k, full + n * kTileK);
  }
  add_tile(dy, x, rows, full, kTileK, zero);
  for (int64_t n = 0; n < num_n; ++n) std::copy_n(full + n * kTileK, num_k, out + n * out_stride);
}

// Columns [begin, begin + count) of rows [row, row + rows) as panels of `kWidth` columns, the last filled with zeros.
template <int64_t kWidth>
void copy_columns(const float* source, int64_t stride, const int32_t* row_list, int64_t row, int64_t rows,
                  int64_t begin, int64_t count, float* panels, int64_t panel_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* in = source + (row_list ? row_list[row + i] : row + i) * stride + begin;
    float* out = panels + i * kWidth;
    int64_t c = 0;
    // Of a constant size: moves of registers, not a call.
    for (; c + kWidth <= count; c += kWidth, out += panel_stride) std::memcpy(out, in + c, kWidth * sizeof(float));
    if (c < count) std::fill(std::copy_n(in + c, count - c, out), out + kWidth, 0.0f);
  }
}

void add_region(const OuterSum& sum, const Region& region) {
  thread_local std::vector<float> scratch;
  const int64_t tiles_n = (region.num_n + kTileN - 1) / kTileN, tiles_k = (region.num_k + kTileK - 1) / kTileK;
  const int64_t rows_max = std::min(kBlockRows, sum.m);
  // A line apart, so that the panels of a row do not share a place in the cache.
  const int64_t dy_stride = rows_max * kTileN + 16, x_stride = rows_max * kTileK + 16;
  scratch.resize(std::max(scratch.size(), static_cast<size_t>(tiles_n * dy_stride + tiles_k * x_stride)));
  float* dy = scratch.data();
  float* x = dy + tiles_n * dy_stride;
  for (int64_t row = 0; row < sum.m; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, sum.m - row);
    copy_columns<kTileN>(sum.dy, sum.dy_stride, sum.dy_rows, row, rows, region.n, region.num_n, dy, dy_stride);
    copy_columns<kTileK>(sum.x, sum.x_stride, sum.x_rows, row, rows, region.k, region.num_k, x, x_stride);
    const bool zero = row == 0 && !sum.accumulate;
    for (int64_t tk = 0; tk < tiles_k; ++tk) {
      for (int64_t tn = 0; tn < tiles_n; ++tn) {
        const int64_t num_n = std::min(kTileN, region.num_n - tn * kTileN);
        const int64_t num_k = std::min(kTileK, region.num_k - tk * kTileK);
        float* out = sum.out + (region.n + tn * kTileN) * sum.k + region.k + tk * kTileK;
        const float* dy_panel = dy + tn * dy_stride;
        const float* x_panel = x + tk * x_stride;
        if (num_n == kTileN && num_k == kTileK) {
          add_tile(dy_panel, x_panel, rows, out, sum.k, zero);
        } else {
          add_edge_tile(dy_panel, x_panel, rows, out, sum.k, zero, num_n, num_k);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {

HWY_EXPORT(add_region);

constexpr int64_t kRegionN = 96, kRegionK = 128;
constexpr double kGrainNs = 25000;

int64_t regions_n(const OuterSum& sum) { return (sum.n + kRegionN - 1) / kRegionN; }
int64_t regions_k(const OuterSum& sum) { return (sum.k + kRegionK - 1) / kRegionK; }

Region region_of(const OuterSum& sum, int64_t index) {
  Region region;
  region.n = index / regions_k(sum) * kRegionN;
  region.num_n = std::min(kRegionN, sum.n - region.n);
  region.k = index % regions_k(sum) * kRegionK;
  region.num_k = std::min(kRegionK, sum.k - region.k);
  return region;
}

}  // namespace

void add_outer(std::span<const OuterSum> sums) {
  thread_local std::vector<int64_t> ends_of_caller;
  std::vector<int64_t>& ends = ends_of_caller;
  ends.clear();
  int64_t regions = 0;
  double flops = 0;
  for (const OuterSum& sum : sums) {
    CHECK(sum.m >= 0 && sum.n >= 0 && sum.k >= 0);
    if (sum.m == 0 && !sum.accumulate) std::fill_n(sum.out, sum.n * sum.k, 0.0f);
    if (sum.m > 0) regions += regions_n(sum) * regions_k(sum);
    flops += 2.0 * static_cast<double>(sum.m * sum.n * sum.k);
    ends.push_back(regions);
  }
  if (regions == 0) return;
  const auto grain = static_cast<int64_t>(kGrainNs * 60 * static_cast<double>(regions) / std::max(flops, 1.0)) + 1;
  base::parallel_for(regions, grain, [&](int64_t begin, int64_t end) {
    auto at = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (int64_t i = begin; i < end; ++i) {
      while (i >= ends[at]) ++at;
      const int64_t first = at == 0 ? 0 : ends[at - 1];
      HWY_DYNAMIC_DISPATCH(add_region)(sums[at], region_of(sums[at], i - first));
    }
  });
}

}  // namespace kernels::cpu
#endif
