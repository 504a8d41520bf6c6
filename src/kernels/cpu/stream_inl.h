// Dot products of one row with the M streams of a token. Compiled once per instruction set, as row_inl.h.
#if defined(FURLONG_KERNELS_CPU_STREAM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FURLONG_KERNELS_CPU_STREAM_INL_H
#undef FURLONG_KERNELS_CPU_STREAM_INL_H
#else
#define FURLONG_KERNELS_CPU_STREAM_INL_H
#endif

#include "kernels/cpu/row_inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

// to[s] = sum over i of streams[s * d + i] * row[i]. kM: m, where the compiler shall know it, else 0.
template <int kM>
HWY_INLINE void stream_dots(const float* streams, int64_t m, int64_t d, const float* row, float* to) {
  if constexpr (kM > 0) {
    Chains sums[kM];
    each_chain(d, [&](int64_t i, int p, auto access) HWY_ATTR {
      const V v = access.load(row + i);
#pragma GCC unroll 8
      for (int s = 0; s < kM; ++s) sums[s].add_product(p, access.load(streams + s * d + i), v);
    });
#pragma GCC unroll 8
    for (int s = 0; s < kM; ++s) to[s] = sums[s].total();
  } else {
    for (int64_t s = 0; s < m; ++s) stream_dots<1>(streams + s * d, 1, d, row, to + s);
  }
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
