// The turn of one row, for kernels to inline. Compiled once per instruction set, as row_inl.h.
#if defined(FURLONG_KERNELS_CPU_ROPE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FURLONG_KERNELS_CPU_ROPE_INL_H
#undef FURLONG_KERNELS_CPU_ROPE_INL_H
#else
#define FURLONG_KERNELS_CPU_ROPE_INL_H
#endif

#include "kernels/cpu/rope.h"
#include "kernels/cpu/round_inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

// The pairs at `row`, in place, by the angle of row r.
template <bool kBf16>
HWY_INLINE void turn_pairs(const Turn& turn, int64_t r, float* row) {
  const D d;
  const int64_t at = turn.position[r / turn.rows_per_token] * turn.pairs;
  const float *cos = turn.cos + at, *sin = turn.sin + at;
  const V flip = turn.inverse ? hn::SignBit(d) : hn::Zero(d);
  int64_t i = 0;
  for (; i + kWidth <= turn.pairs; i += kWidth) {
    V a, b;
    hn::LoadInterleaved2(d, row + 2 * i, a, b);
    const V c = hn::LoadU(d, cos + i), s = hn::Xor(hn::LoadU(d, sin + i), flip);
    const V turned_a = hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), turned_b = hn::Add(hn::Mul(a, s), hn::Mul(b, c));
    hn::StoreInterleaved2(round_if<kBf16>(turned_a), round_if<kBf16>(turned_b), d, row + 2 * i);
  }
  if (i == turn.pairs) return;
  HWY_ALIGN float pair[2 * kWidth] = {};
  const auto bytes = static_cast<size_t>(2 * (turn.pairs - i)) * sizeof(float);
  std::memcpy(pair, row + 2 * i, bytes);
  for (int64_t j = 0; i + j < turn.pairs; ++j) {
    const float a = pair[2 * j], b = pair[2 * j + 1];
    const float c = cos[i + j], s = turn.inverse ? -sin[i + j] : sin[i + j];
    pair[2 * j] = a * c - b * s;
    pair[2 * j + 1] = a * s + b * c;
  }
  each_vector(2 * (turn.pairs - i), [&](int64_t j, auto access) HWY_ATTR {
    access.store(round_if<kBf16>(hn::Load(D(), pair + j)), row + 2 * i + j);
  });
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
