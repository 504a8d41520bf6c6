// One pass for the largest magnitude while the group is read into the cache, one for rounding.
#include "kernels/cpu/simulate.h"

#include <cmath>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simulate.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/round_inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

void round_range(const float* from, float* to, int64_t count) {
  each_vector(count,
              [&](int64_t i, auto access) HWY_ATTR { access.store(round_to_bf16(access.load(from + i)), to + i); });
}

void simulate_range(const GroupedRows& rows, BlockFormat format, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t at = r * rows.columns;
    if (format == BlockFormat::e4m3) {
      simulate_row<BlockFormat::e4m3>(rows.from + at, rows.to + at, rows.columns, rows.group);
    } else {
      simulate_row<BlockFormat::e2m1>(rows.from + at, rows.to + at, rows.columns, rows.group);
    }
  }
}

// +1 where a lane is the first of its pair at a stride, -1 where it is the second.
template <int kStride>
HWY_INLINE V signs() {
  HWY_ALIGN float sign[kChains];
  for (int i = 0; i < kChains; ++i) sign[i] = (i & kStride) == 0 ? 1.0f : -1.0f;
  return hn::Load(D(), sign);
}

// The butterflies whose pairs lie in one vector. Unqualified: the baseline, a single lane, has no shuffles.
template <class Vector>
HWY_INLINE Vector butterflies_inside(Vector v) {
  const D d;
  if constexpr (kWidth >= 4) {
    v = hn::MulAdd(v, signs<1>(), Shuffle2301(v));
    v = hn::MulAdd(v, signs<2>(), Shuffle1032(v));
  }
  if constexpr (kWidth >= 8) v = hn::MulAdd(v, signs<4>(), SwapAdjacentBlocks(v));
  if constexpr (kWidth >= 16) v = hn::MulAdd(v, signs<8>(), ConcatLowerUpper(d, v, v));
  return v;
}

void hadamard_row(const float* from, float* to, int64_t dim) {
  const D d;
  int64_t stride = 1;
  if (dim >= kWidth) {
    for (int64_t i = 0; i < dim; i += kWidth) hn::StoreU(butterflies_inside(hn::LoadU(d, from + i)), d, to + i);
    for (stride = kWidth; stride < dim; stride *= 2) {
      for (int64_t at = 0; at < dim; at += 2 * stride) {
        for (int64_t i = at; i < at + stride; i += kWidth) {
          const V a = hn::LoadU(d, to + i), b = hn::LoadU(d, to + i + stride);
          hn::StoreU(hn::Add(a, b), d, to + i);
          hn::StoreU(hn::Sub(a, b), d, to + i + stride);
        }
      }
    }
    return;
  }
  std::copy(from, from + dim, to);
  for (; stride < dim; stride *= 2) {
    for (int64_t i = 0; i < dim; ++i) {
      if ((i & stride) != 0) continue;
      const float a = to[i], b = to[i + stride];
      to[i] = a + b;
      to[i + stride] = a - b;
    }
  }
}

void hadamard_range(const float* from, float* to, int64_t begin, int64_t end, int64_t dim) {
  const V norm = hn::Set(D(), static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim))));
  for (int64_t r = begin; r < end; ++r) {
    float* row = to + r * dim;
    hadamard_row(from + r * dim, row, dim);
    each_vector(dim, [&](int64_t i, auto access)
                         HWY_ATTR { access.store(round_to_bf16(hn::Mul(access.load(row + i), norm)), row + i); });
    simulate_row<BlockFormat::e2m1>(row, row, dim, 32);
  }
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {
HWY_EXPORT(round_range);
HWY_EXPORT(simulate_range);
HWY_EXPORT(hadamard_range);

constexpr int64_t kGrain = 32768;  // values below which a second thread costs more than it brings
int64_t row_grain(int64_t columns) { return std::max<int64_t>(kGrain / std::max<int64_t>(columns, 1), 1); }
}  // namespace

void round_bf16(const float* from, float* to, int64_t count) {
  const auto run = HWY_DYNAMIC_DISPATCH(round_range);
  base::parallel_for(count, kGrain, [&](int64_t begin, int64_t end) { run(from + begin, to + begin, end - begin); });
}

void simulate_groups(const GroupedRows& rows, BlockFormat format) {
  CHECK(rows.group >= 1, "groups of {}", rows.group);
  const auto run = HWY_DYNAMIC_DISPATCH(simulate_range);
  base::parallel_for(rows.rows, row_grain(rows.columns),
                     [&](int64_t begin, int64_t end) { run(rows, format, begin, end); });
}

void hadamard_e2m1(const float* from, float* to, int64_t rows, int64_t dim) {
  CHECK(dim >= 1 && (dim & (dim - 1)) == 0, "a Hadamard transform of {}", dim);
  const auto run = HWY_DYNAMIC_DISPATCH(hadamard_range);
  base::parallel_for(rows, row_grain(dim), [&](int64_t begin, int64_t end) { run(from, to, begin, end, dim); });
}

}  // namespace kernels::cpu
#endif
