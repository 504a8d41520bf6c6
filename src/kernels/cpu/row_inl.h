// Walking a row of f32 in vectors, and sums over a row in an order that does not depend on the vectors' width. Compiled
// once per instruction set: for inclusion between hwy/foreach_target.h and the end of a kernel file.
//
// A sum over a row is 16 chains, chain c over the elements i with i % 16 == c in ascending order, then halves: c + 8,
// c + 4, c + 2, c + 1. AVX2, AVX-512 and NEON give equal bits; the baseline of x86, which has no fused multiply-add,
// others.
#if defined(FURLONG_KERNELS_CPU_ROW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FURLONG_KERNELS_CPU_ROW_INL_H
#undef FURLONG_KERNELS_CPU_ROW_INL_H
#else
#define FURLONG_KERNELS_CPU_ROW_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 16;
using D = hn::CappedTag<float, kChains>;
using V = hn::Vec<D>;
constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
constexpr int kParts = kChains / kWidth;

// How a body reads and writes a vector: a whole one, or the last of a row, with zeros behind its values.
struct Whole {
  HWY_INLINE V load(const float* from) const { return hn::LoadU(D(), from); }
  HWY_INLINE void store(V v, float* to) const { hn::StoreU(v, D(), to); }
};
struct Part {
  int64_t count;  // 1 to kWidth - 1
  HWY_INLINE V load(const float* from) const {
    HWY_ALIGN float buffer[kWidth] = {};
    std::memcpy(buffer, from, static_cast<size_t>(count) * sizeof(float));
    return hn::Load(D(), buffer);
  }
  HWY_INLINE void store(V v, float* to) const {
    HWY_ALIGN float buffer[kWidth];
    hn::Store(v, D(), buffer);
    std::memcpy(to, buffer, static_cast<size_t>(count) * sizeof(float));
  }
};

// body(i, access) for every vector of a row of n values.
template <class Body>
HWY_INLINE void each_vector(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

// body(i, chains, access) for every vector of a row, chains telling which of kParts accumulators it belongs to.
template <class Body>
HWY_INLINE void each_chain(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
#pragma GCC unroll 16
    for (int p = 0; p < kParts; ++p) body(i + p * kWidth, p, Whole{});
  }
#pragma GCC unroll 16
  for (int p = 0; p < kParts; ++p, i += kWidth) {
    if (i + kWidth <= n) {
      body(i, p, Whole{});
    } else if (i < n) {
      body(i, p, Part{n - i});
    }
  }
}

// UpperHalf unqualified: the baseline, a single lane, has none.
template <class DD>
HWY_INLINE float fold_lanes(DD d, hn::Vec<DD> v) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<DD> half;
    return fold_lanes(half, hn::Add(hn::LowerHalf(half, v), UpperHalf(half, v)));
  }
}

// The 16 chains of one sum.
struct Chains {
  V part[kParts];
  HWY_INLINE Chains() {
#pragma GCC unroll 16
    for (int p = 0; p < kParts; ++p) part[p] = hn::Zero(D());
  }
  HWY_INLINE void add_product(int p, V a, V b) { part[p] = hn::MulAdd(a, b, part[p]); }
  HWY_INLINE float total() {
#pragma GCC unroll 4
    for (int half = kParts / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
      for (int p = 0; p < half; ++p) part[p] = hn::Add(part[p], part[p + half]);
    }
    return fold_lanes(D(), part[0]);
  }
};

HWY_INLINE float sum_of_squares(const float* x, int64_t n) {
  Chains sum;
  each_chain(n, [&](int64_t i, int p, auto access) HWY_ATTR {
    const V v = access.load(x + i);
    sum.add_product(p, v, v);
  });
  return sum.total();
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
