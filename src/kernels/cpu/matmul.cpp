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
#include "kernels/cpu/matmul_work.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_NATIVE_FMA

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, kPanel>;
using U = hn::RebindToUnsigned<F>;
using U16 = hn::Rebind<uint16_t, F>;
using I16 = hn::Rebind<int16_t, F>;
using F16 = hn::Rebind<hwy::float16_t, F>;
using U8 = hn::Repartition<uint8_t, U16>;
using V = hn::Vec<F>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));
constexpr int kVecs = static_cast<int>(kPanel) / kLanes;  // vectors of a panel

// Weights of one step as f32 vectors, times kUnit: at(step, v, out) gives out[j], k j of the step, outputs of vector v.
struct F32Panel {
  static constexpr WeightFormat kFormat = WeightFormat::f32;
  static constexpr int kStep = 1;
  static HWY_INLINE void at(const uint8_t* step, int v, V (&out)[kStep]) {
    out[0] = hn::LoadU(F(), reinterpret_cast<const float*>(step) + v * kLanes);
  }
};

struct Bf16Panel {
  static constexpr WeightFormat kFormat = WeightFormat::bf16;
  static constexpr int kStep = 2;
  static HWY_INLINE void at(const uint8_t* step, int v, V (&out)[kStep]) {
    const auto pair = hn::LoadU(U(), reinterpret_cast<const uint32_t*>(step) + v * kLanes);
    out[0] = hn::BitCast(F(), hn::ShiftLeft<16>(pair));
    out[1] = hn::BitCast(F(), hn::And(pair, hn::Set(U(), 0xFFFF0000u)));
  }
};

// s.eeee.mmm becomes an f16 whose value is 2^-8 of the code's, subnormal codes included.
struct E4m3Panel {
  static constexpr WeightFormat kFormat = WeightFormat::e4m3;
  static constexpr int kStep = 2;
  static constexpr float kUnit = 256;
  static HWY_INLINE V f16(hn::Vec<I16> code_on_top) {
    const auto bits = hn::And(hn::BitCast(U16(), hn::ShiftRight<1>(code_on_top)), hn::Set(U16(), 0xBF80));
    return hn::PromoteTo(F(), hn::BitCast(F16(), bits));
  }
  static HWY_INLINE void at(const uint8_t* step, int v, V (&out)[kStep]) {
    const auto pair = hn::LoadU(I16(), reinterpret_cast<const int16_t*>(step) + v * kLanes);
    out[0] = f16(hn::ShiftLeft<8>(pair));
    out[1] = f16(pair);
  }
};

// A code is looked up as the upper byte of its value in f16; the lower byte is zero for all of them.
struct E2m1Panel {
  static constexpr WeightFormat kFormat = WeightFormat::e2m1;
  static constexpr int kStep = 4;
  static constexpr float kUnit = 1;
  static HWY_INLINE V f16(hn::Vec<U16> bits) { return hn::PromoteTo(F(), hn::BitCast(F16(), bits)); }
  static HWY_INLINE void at(const uint8_t* step, int v, V (&out)[kStep]) {
    alignas(16) static constexpr uint8_t kUpper[16] = {0x00, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46,
                                                       0x80, 0xB8, 0xBC, 0xBE, 0xC0, 0xC2, 0xC4, 0xC6};
    const auto table = hn::LoadDup128(U8(), kUpper);
    const auto low_nibbles = hn::Set(U8(), 0x0F);
    const auto codes = hn::LoadU(U8(), step + v * 2 * kLanes);
    const auto high = hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U16(), codes)));
    const auto even = hn::BitCast(U16(), hn::TableLookupBytes(table, hn::And(codes, low_nibbles)));
    const auto odd = hn::BitCast(U16(), hn::TableLookupBytes(table, hn::And(high, low_nibbles)));
    const auto upper = hn::Set(U16(), 0xFF00);
    out[0] = f16(hn::ShiftLeft<8>(even));
    out[1] = f16(hn::ShiftLeft<8>(odd));
    out[2] = f16(hn::And(even, upper));
    out[3] = f16(hn::And(odd, upper));
  }
};

HWY_INLINE V round_bf16(V value) {
  const auto bits = hn::BitCast(U(), value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U(), 1));
  const auto rounded = hn::And(hn::Add(bits, hn::Add(odd, hn::Set(U(), 0x7FFF))), hn::Set(U(), 0xFFFF0000u));
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(F(), hn::Set(U(), 0x7FC00000u)), hn::BitCast(F(), rounded));
}

// A tile: R rows times P panels over k of [begin, end).
struct Tile {
  const float* const* x;  // R rows, from k 0
  float* const* y;        // R rows, from output `column` on
  int64_t column = 0;
  const uint8_t* panel = nullptr;  // at k `begin`, a multiple of the step
  int64_t panel_stride = 0;        // bytes
  int64_t begin = 0, end = 0;
  bool first = true, last = true;  // block of the product's
  bool round = false;              // the last block's results
  const float* scales = nullptr;   // of the block, quantised only
  int64_t scale_stride = 0;        // between panels
};

template <class W, int R, int P>
HWY_INLINE void add_step(const float* const (&x)[R], const uint8_t* step, int64_t stride, int64_t k, int count,
                         V (&sum)[R * P * kVecs]) {
  V weight[P * kVecs][W::kStep];
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) W::at(step + p * stride, v, weight[p * kVecs + v]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < W::kStep; ++j) {
    if (j >= count) break;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V value = hn::Set(F(), x[r][k + j]);
#pragma GCC unroll 16
      for (int i = 0; i < P * kVecs; ++i) {
        sum[r * P * kVecs + i] = hn::MulAdd(value, weight[i][j], sum[r * P * kVecs + i]);
      }
    }
  }
}

template <class W, int R, int P>
HWY_NOINLINE void multiply_tile(const Tile& tile) {
  constexpr int kRow = P * kVecs;
  constexpr bool kScaled = panel_layout(W::kFormat).block_k > 0;
  const float* x[R];
  V sum[R * kRow];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = tile.x[r];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kRow; ++i) {
      sum[r * kRow + i] = kScaled || tile.first ? hn::Zero(F()) : hn::LoadU(F(), tile.y[r] + tile.column + i * kLanes);
    }
  }
  const uint8_t* step = tile.panel;
  int64_t k = tile.begin;
  for (; k + W::kStep <= tile.end; k += W::kStep, step += panel_layout(W::kFormat).step_bytes) {
    add_step<W, R, P>(x, step, tile.panel_stride, k, W::kStep, sum);
  }
  if (k < tile.end) add_step<W, R, P>(x, step, tile.panel_stride, k, static_cast<int>(tile.end - k), sum);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kRow; ++i) {
      float* y = tile.y[r] + tile.column + i * kLanes;
      V result = sum[r * kRow + i];
      if constexpr (kScaled) {
        const float* scales = tile.scales + i / kVecs * tile.scale_stride;
        const V scale = panel_layout(W::kFormat).scales_per_block == 1 ? hn::Set(F(), scales[0])
                                                                       : hn::LoadU(F(), scales + i % kVecs * kLanes);
        if constexpr (W::kUnit != 1) result = hn::Mul(result, hn::Set(F(), W::kUnit));
        result = hn::MulAdd(result, scale, tile.first ? hn::Zero(F()) : hn::LoadU(F(), y));
      }
      if (tile.last && tile.round) result = round_bf16(result);
      hn::StoreU(result, F(), y);
    }
  }
}

// All panels of the unit over one block of k, rows [row, row + rows) of it.
template <class W>
void multiply_rows(Tile tile, int64_t rows, int64_t panels) {
  const auto walk = [&](auto function, int64_t width) HWY_ATTR {
    int64_t p = 0;
    for (; p + width <= panels; p += width) {
      Tile part = tile;
      part.panel += p * tile.panel_stride;
      part.column += p * kPanel;
      if (tile.scales) part.scales += p * tile.scale_stride;
      function(part);
    }
    return p;
  };
  const auto both = [&](auto wide, int64_t width, auto narrow) HWY_ATTR {
    const int64_t done = walk(wide, width);
    tile.panel += done * tile.panel_stride;
    tile.column += done * kPanel;
    if (tile.scales) tile.scales += done * tile.scale_stride;
    panels -= done;
    walk(narrow, 1);
  };
  switch (rows) {
    case 1:
      return both(multiply_tile<W, 1, 4>, 4, multiply_tile<W, 1, 1>);
    case 2:
      return both(multiply_tile<W, 2, 2>, 2, multiply_tile<W, 2, 1>);
    case 3:
      return both(multiply_tile<W, 3, 2>, 2, multiply_tile<W, 3, 1>);
    case 4:
      walk(multiply_tile<W, 4, 1>, 1);
      return;
    case 5:
      walk(multiply_tile<W, 5, 1>, 1);
      return;
    default:
      walk(multiply_tile<W, 6, 1>, 1);
      return;
  }
}

// Rows in tiles of at most six, as even as possible.
template <class F>
HWY_INLINE void for_tiles(int64_t rows, const F& body) {
  const int64_t tiles = ceil_div(rows, 6);
  int64_t row = 0;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t count = (rows - row) / (tiles - i);
    body(row, count);
    row += count;
  }
}

struct Rows {
  const float* x[kUnitRows];
  float* y[kUnitRows];
};

template <class W>
void multiply_unit(const Product& product, const Unit& unit, const Rows& rows, int64_t column) {
  constexpr PanelLayout layout = panel_layout(W::kFormat);
  constexpr int64_t kBlock = layout.block_k > 0 ? layout.block_k : 256;
  const PackedMatrix& weight = product.weight;
  const int64_t stride = panel_size(W::kFormat, weight.k), blocks = ceil_div(weight.k, kBlock);
  const auto* panels = static_cast<const uint8_t*>(weight.panels) + unit.first_panel * stride;
  for (int64_t block = 0; block < blocks; ++block) {
    Tile tile;
    tile.column = column;
    tile.begin = block * kBlock;
    tile.end = std::min(tile.begin + kBlock, weight.k);
    tile.panel = panels + tile.begin / layout.step_k * layout.step_bytes;
    tile.panel_stride = stride;
    tile.first = block == 0;
    tile.last = block + 1 == blocks;
    tile.round = product.round_bf16;
    if (layout.block_k > 0) {
      tile.scale_stride = blocks * layout.scales_per_block;
      tile.scales = weight.scales + unit.first_panel * tile.scale_stride + block * layout.scales_per_block;
    }
    for_tiles(unit.num_rows, [&](int64_t row, int64_t count) HWY_ATTR {
      tile.x = rows.x + row;
      tile.y = rows.y + row;
      multiply_rows<W>(tile, count, unit.num_panels);
    });
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
  const int64_t first_column = partial ? 0 : column;
  switch (product.weight.format) {
    case WeightFormat::f32:
      multiply_unit<F32Panel>(product, unit, rows, first_column);
      break;
    case WeightFormat::bf16:
      multiply_unit<Bf16Panel>(product, unit, rows, first_column);
      break;
    case WeightFormat::e4m3:
      multiply_unit<E4m3Panel>(product, unit, rows, first_column);
      break;
    case WeightFormat::e2m1:
      multiply_unit<E2m1Panel>(product, unit, rows, first_column);
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
