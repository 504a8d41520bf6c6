// multiply(): kernels for each instruction set, and the cut of a call into units. Rows go in tiles of up to six, whose
// sums stay in registers over a block of k; between blocks they stay in the output.
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
constexpr int kMaxRows = kLanes == 16                            ? 8
                         : Source::kFormat == WeightFormat::e2m1 ? 4
                                                                 : 6;
template <class Source>
constexpr int panels_of(int rows) {
  if (kLanes == 16) return rows == 1 ? 8 : rows <= (kDecodes<Source> ? 4 : 6) ? 4 : 2;
  if (rows == 1) return Source::kFormat == WeightFormat::e2m1 ? 2 : 4;
  return rows <= 3 && Source::kGroup <= 2 ? 2 : 1;
}

// What stays in the nearest cache while more rows than one tile's pass: blocks of k of some panels, 16 KiB where that
// cache may be 32 KiB, 32 KiB where it is 48.
constexpr int64_t kBlock = 128, kBlockPanels = kLanes == 16 ? 4 : 2;
// Above so many rows a block is decoded once for all of them.
template <class Source>
constexpr int64_t kDecodeAbove = Source::kFormat == WeightFormat::bf16 ? 24 : kMaxRows<Source>;

// Calls tiles of P panels as long as there are as many, then narrower ones, and moves behind them.
template <class Source, WeightFormat kFormat, int R, int P>
HWY_INLINE void walk(Tile& tile, int64_t& panels) {
  for (; panels >= P; panels -= P) {
    multiply_tile<Source, kFormat, R, P>(tile);
    tile.panel += P * tile.panel_stride;
    tile.column += P * kPanel;
    if (tile.scales) tile.scales += P * tile.scale_stride;
  }
  if constexpr (P > 1) walk<Source, kFormat, R, P / 2>(tile, panels);
}

// All panels, for `rows` rows of at most kMaxRows.
template <class Source, WeightFormat kFormat, int R = kMaxRows<Source>>
HWY_INLINE void multiply_rows(Tile tile, int64_t rows, int64_t panels) {
  if (rows == R) {
    walk<Source, kFormat, R, panels_of<Source>(R)>(tile, panels);
  } else if constexpr (R > 1) {
    multiply_rows<Source, kFormat, R - 1>(tile, rows, panels);
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

struct Rows {
  const float* x[kUnitRows];
  float* y[kUnitRows];
};

// A unit whose panels start at the tile's. The rows of a single tile read each panel once, from front to end; more go
// block by block.
template <class Source>
void multiply_unit(Tile tile, int64_t k, const Rows& rows, int64_t num_rows, int64_t panels) {
  constexpr WeightFormat kFormat = Source::kFormat;
  constexpr PanelLayout kLayout = panel_layout(kFormat);
  constexpr WeightFormat kScaled = kLayout.block_k > 0 ? kFormat : WeightFormat::f32;  // the format of decoded blocks
  const bool decoded = kDecodes<Source> && num_rows > kDecodeAbove<Source>;
  const int64_t block_k = num_rows > kMaxRows<Source> ? kBlock : k;
  const int64_t block_panels = num_rows > kMaxRows<Source> ? kBlockPanels : panels;
  // A single tile of f32 may have more rows than pays where several pass.
  const int64_t most = num_rows <= kMaxRows<Source> ? num_rows : decoded || !kDecodes<Source> ? 6 : kMaxRows<Source>;
  const Tile whole = tile;
  alignas(64) float weights[kDecodes<Source> ? kBlockPanels * kBlock * kPanel : 1];
  for (int64_t begin = 0; begin < k; begin += block_k) {
    tile.begin = begin;
    tile.end = std::min(begin + block_k, k);
    tile.first = begin == 0;
    tile.last = tile.end == k;
    for (int64_t p = 0; p < panels; p += block_panels) {
      const int64_t width = std::min(block_panels, panels - p);
      tile.column = whole.column + p * kPanel;
      tile.panel = whole.panel + p * whole.panel_stride + begin / kLayout.step_k * kLayout.step_bytes;
      if constexpr (kLayout.block_k > 0) {
        tile.scales = whole.scales + p * tile.scale_stride + begin / kLayout.block_k * kLayout.scales_per_block;
      }
      if (decoded) {
        for (int64_t i = 0; i < width; ++i) {
          decode<Source>(tile.panel + i * whole.panel_stride, tile.end - begin, weights + i * kBlock * kPanel);
        }
        tile.panel = reinterpret_cast<const uint8_t*>(weights);
        tile.panel_stride = kBlock * kPanel * static_cast<int64_t>(sizeof(float));
      }
      for_tiles(num_rows, most, [&](int64_t row, int64_t count) HWY_ATTR {
        tile.x = rows.x + row;
        tile.y = rows.y + row;
        if (decoded) {
          multiply_rows<F32Source, kScaled>(tile, count, width);
        } else {
          multiply_rows<Source, kFormat>(tile, count, width);
        }
      });
    }
  }
}

void multiply_unit(const Product& product, const Unit& unit) {
  Rows rows;
  const int64_t columns = unit.num_panels * kPanel, column = unit.first_panel * kPanel;
  const bool partial = column + columns > product.weight.n;
  float results[kUnitRows * kUnitPanels * kPanel];  // where the padded outputs of the last panel have room
  for (int64_t i = 0; i < unit.num_rows; ++i) {
    rows.x[i] = input_row(product, unit.first_row + i);
    rows.y[i] = partial ? results + i * columns : output_row(product, unit.first_row + i);
  }
  const PackedMatrix& weight = product.weight;
  const PanelLayout layout = panel_layout(weight.format);
  Tile tile;
  tile.column = partial ? 0 : column;
  tile.panel_stride = panel_size(weight.format, weight.k);
  tile.panel = static_cast<const uint8_t*>(weight.panels) + unit.first_panel * tile.panel_stride;
  tile.round = product.round_bf16;
  if (layout.block_k > 0) {
    tile.scale_stride = ceil_div(weight.k, layout.block_k) * layout.scales_per_block;
    tile.scales = weight.scales + unit.first_panel * tile.scale_stride;
  }
  const int64_t k = weight.k, m = unit.num_rows, panels = unit.num_panels;
  switch (weight.format) {
    case WeightFormat::f32:
      multiply_unit<F32Source>(tile, k, rows, m, panels);
      break;
    case WeightFormat::bf16:
      multiply_unit<Bf16Source>(tile, k, rows, m, panels);
      break;
    case WeightFormat::e4m3:
      multiply_unit<E4m3Source>(tile, k, rows, m, panels);
      break;
    case WeightFormat::e2m1:
      multiply_unit<E2m1Source>(tile, k, rows, m, panels);
      break;
  }
  if (!partial) return;
  for (int64_t i = 0; i < unit.num_rows; ++i) {
    std::memcpy(output_row(product, unit.first_row + i) + column, rows.y[i],
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
  return {ceil_div(product.m, kUnitRows), ceil_div(num_panels(product.weight.n), unit_panels(product.m))};
}

Unit unit_of(const Product& product, const Cut& cut, int64_t index) {
  const int64_t chunk = index / cut.panel_groups, group = index % cut.panel_groups;
  Unit unit;
  unit.first_row = chunk * product.m / cut.row_chunks;
  unit.num_rows = (chunk + 1) * product.m / cut.row_chunks - unit.first_row;
  unit.first_panel = group * unit_panels(product.m);
  unit.num_panels = std::min(unit_panels(product.m), num_panels(product.weight.n) - unit.first_panel);
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

constexpr double kGrainNs = 25000;

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
