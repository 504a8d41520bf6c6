// multiply(): kernels for each instruction set, and the cut of a call into units. Rows go in tiles, whose sums
// stay in registers over a block of k; between blocks they stay in the output.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/matmul_tile_inl.h"
#include "kernels/cpu/matmul_work.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_NATIVE_FMA

// Rows and panels of a tile: as many sums as the registers hold beside what decoding needs, and at least eight of them
// where that is possible: a core begins two multiply-adds a cycle and ends each four cycles later.
template <class Source>
constexpr bool kDecodes = Source::kFormat != WeightFormat::f32;
template <class Source>
constexpr int kMaxRows = kLanes == 16       ? 8
                         : kDecodes<Source> ? 4
                                            : 6;
template <class Source>
constexpr int panels_of(int rows) {
  if (kLanes == 16) return rows <= (kDecodes<Source> ? 4 : 6) ? 4 : 2;
  if (rows == 1) return Source::kFormat == WeightFormat::e2m1 ? 2 : 4;
  return rows <= 3 && Source::kGroup <= 2 ? 2 : 1;
}

// What stays in the nearest cache while more rows than one tile's pass: blocks of k of some panels, 16 KiB where that
// cache may be 32 KiB, 32 KiB where it is 48.
constexpr int64_t kBlock = 128, kBlockPanels = kLanes == 16 ? 4 : 2;
// Rows of f32 that pass a block at a time: with eight a tile would be two panels wide, not four.
constexpr int64_t kPassingRows = 6;
// Above so many rows a block is decoded once for all of them.
template <class Source>
constexpr int64_t kDecodeAbove = (Source::kFormat == WeightFormat::bf16 ? 3 : 1) * kMaxRows<Source>;

// Tiles of P panels as long as there are as many, then narrower ones.
template <class Source, WeightFormat kFormat, int R, int P>
HWY_INLINE void walk(const Block& block, int64_t row, int64_t panel, int64_t panels) {
  for (; panel + P <= panels; panel += P) multiply_tile<Source, kFormat, R, P>(block, row, panel);
  if constexpr (P > 1) walk<Source, kFormat, R, P / 2>(block, row, panel, panels);
}

// All panels, for `rows` rows of at most kMaxRows.
template <class Source, WeightFormat kFormat, int R = kMaxRows<Source>>
HWY_INLINE void multiply_rows(const Block& block, int64_t row, int64_t rows, int64_t panels) {
  if (rows == R) {
    walk<Source, kFormat, R, panels_of<Source>(R)>(block, row, 0, panels);
  } else if constexpr (R > 1) {
    multiply_rows<Source, kFormat, R - 1>(block, row, rows, panels);
  }
}

// Rows in tiles of `most`; a last one of less than four shares with the one before.
template <class Body>
HWY_INLINE void for_tiles(int64_t rows, int64_t most, const Body& body) {
  for (int64_t row = 0; row < rows;) {
    const int64_t left = rows - row;
    const int64_t count = left <= most ? left : left - most >= 4 ? most : ceil_div(left, 2);
    body(row, count);
    row += count;
  }
}

// A unit whose panels, scales, rows and column `block` has. The rows of a single tile read each panel once, from front
// to end; more go block by block.
template <class Source>
void multiply_unit(Block& block, int64_t k, int64_t num_rows, int64_t num_panels) {
  constexpr WeightFormat kFormat = Source::kFormat;
  constexpr PanelLayout kLayout = panel_layout(kFormat);
  constexpr WeightFormat kScaled = kLayout.block_k > 0 ? kFormat : WeightFormat::f32;  // the format of decoded blocks
  constexpr int64_t kTileRows = kDecodes<Source> ? kMaxRows<Source> : kPassingRows;
  if (num_rows <= kMaxRows<Source>) {
    block.end = k;
    return multiply_rows<Source, kFormat>(block, 0, num_rows, num_panels);
  }
  const bool decoded = kDecodes<Source> && num_rows > kDecodeAbove<Source>;
  const uint8_t* const panels = block.panels;
  const float* const scales = block.scales;
  const int64_t column = block.column, panel_stride = block.panel_stride;
  alignas(64) float weights[kDecodes<Source> ? kBlockPanels * kBlock * kPanel : 1];
  for (int64_t begin = 0; begin < k; begin += kBlock) {
    block.begin = begin;
    block.end = std::min(begin + kBlock, k);
    block.first = begin == 0;
    block.last = block.end == k;
    for (int64_t p = 0; p < num_panels; p += kBlockPanels) {
      const int64_t width = std::min(kBlockPanels, num_panels - p);
      block.column = column + p * kPanel;
      block.panels = panels + p * panel_stride + begin / kLayout.step_k * kLayout.step_bytes;
      if constexpr (kLayout.block_k > 0) {
        block.scales = scales + p * block.scale_stride + begin / kLayout.block_k * kLayout.scales_per_block;
      }
      if (!decoded) {
        for_tiles(num_rows, kTileRows, [&](int64_t row, int64_t count) HWY_ATTR {
          multiply_rows<Source, kFormat>(block, row, count, width);
        });
        continue;
      }
      for (int64_t i = 0; i < width; ++i) {
        decode<Source>(block.panels + i * panel_stride, block.end - begin, weights + i * kBlock * kPanel);
      }
      block.panels = reinterpret_cast<const uint8_t*>(weights);
      block.panel_stride = kBlock * kPanel * static_cast<int64_t>(sizeof(float));
      for_tiles(num_rows, kPassingRows, [&](int64_t row, int64_t count) HWY_ATTR {
        multiply_rows<F32Source, kScaled>(block, row, count, width);
      });
    }
  }
}

void multiply_unit(const Product& product, const Unit& unit) {
  const float* x[kUnitRows];
  float* y[kUnitRows];
  const int64_t columns = unit.num_panels * kPanel, column = unit.first_panel * kPanel;
  const bool partial = column + columns > product.weight.n;
  float results[kUnitRows * kUnitPanels * kPanel];  // where the padded outputs of the last panel have room
  for (int64_t i = 0; i < unit.num_rows; ++i) {
    x[i] = input_row(product, unit.first_row + i);
    y[i] = partial ? results + i * columns : output_row(product, unit.first_row + i);
  }
  const PackedMatrix& weight = product.weight;
  const PanelLayout layout = panel_layout(weight.format);
  Block block;
  block.x = x;
  block.y = y;
  block.column = partial ? 0 : column;
  block.panel_stride = panel_size(weight.format, weight.k);
  block.panels = static_cast<const uint8_t*>(weight.panels) + unit.first_panel * block.panel_stride;
  block.round = product.round_bf16;
  if (layout.block_k > 0) {
    block.scale_stride = ceil_div(weight.k, layout.block_k) * layout.scales_per_block;
    block.scales = weight.scales + unit.first_panel * block.scale_stride;
  }
  const int64_t k = weight.k, m = unit.num_rows, panels = unit.num_panels;
  switch (weight.format) {
    case WeightFormat::f32:
      multiply_unit<F32Source>(block, k, m, panels);
      break;
    case WeightFormat::bf16:
      multiply_unit<Bf16Source>(block, k, m, panels);
      break;
    case WeightFormat::e4m3:
      multiply_unit<E4m3Source>(block, k, m, panels);
      break;
    case WeightFormat::e2m1:
      multiply_unit<E2m1Source>(block, k, m, panels);
      break;
  }
  if (!partial) return;
  for (int64_t i = 0; i < unit.num_rows; ++i) {
    std::memcpy(output_row(product, unit.first_row + i) + column, y[i],
                static_cast<size_t>(product.weight.n - column) * sizeof(float));
  }
}

#else

void multiply_unit(const Product& product, const Unit& unit) { multiply_unit_plain(product, unit); }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {

HWY_EXPORT(multiply_unit);

struct Cut {
  int64_t row_chunks = 0, panel_groups = 0;
  int64_t units() const { return row_chunks * panel_groups; }
};

Cut cut_of(const Product& product) {
  return {ceil_div(product.m, kUnitRows), ceil_div(num_panels(product.weight.n), kUnitPanels)};
}

Unit unit_of(const Product& product, const Cut& cut, int64_t index) {
  const int64_t chunk = index / cut.panel_groups, group = index % cut.panel_groups;
  Unit unit;
  unit.first_row = chunk * product.m / cut.row_chunks;
  unit.num_rows = (chunk + 1) * product.m / cut.row_chunks - unit.first_row;
  unit.first_panel = group * kUnitPanels;
  unit.num_panels = std::min(kUnitPanels, num_panels(product.weight.n) - unit.first_panel);
  return unit;
}

void check(const Product& product) {
  CHECK(product.m >= 0 && product.weight.n >= 1 && product.weight.k >= 1);
  CHECK(product.weight.format != WeightFormat::e2m1 || product.weight.k % 2 == 0);
}

// Nanoseconds on one core, roughly: 60 GFLOP/s, 10 GB/s.
double cost_ns(const Product& product) {
  const double flops = 2.0 * static_cast<double>(product.m * product.weight.n * product.weight.k);
  const auto bytes = static_cast<double>(panel_bytes(product.weight.format, product.weight.n, product.weight.k));
  return std::max(flops / 60, product.m == 0 ? 0 : bytes / 10);
}

constexpr double kGrainNs = 8000;  // several times what handing work to a waiting thread costs

}  // namespace

void multiply(std::span<const Product> products) {
  thread_local std::vector<int64_t> ends_of_caller;
  std::vector<int64_t>& ends = ends_of_caller;
  ends.clear();
  int64_t units = 0;
  double cost = 0;
  for (const Product& product : products) {
    check(product);
    units += cut_of(product).units();
    cost += cost_ns(product);
    ends.push_back(units);
  }
  if (units == 0) return;
  const auto grain = static_cast<int64_t>(kGrainNs * static_cast<double>(units) / std::max(cost, 1.0)) + 1;
  base::parallel_for(units, grain, [&](int64_t begin, int64_t end) {
    auto at = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (int64_t i = begin; i < end; ++i) {
      while (i >= ends[at]) ++at;
      const int64_t first = at == 0 ? 0 : ends[at - 1];
      HWY_DYNAMIC_DISPATCH(multiply_unit)
      (products[at], unit_of(products[at], cut_of(products[at]), i - first));
    }
  });
}

}  // namespace kernels::cpu
#endif
