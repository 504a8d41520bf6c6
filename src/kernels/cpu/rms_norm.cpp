// Two passes over a row: its sums, then its values, while it is in the cache.
#include "kernels/cpu/rms_norm.h"

#include <cmath>
#include <memory>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/rope_inl.h"

#ifndef FURLONG_KERNELS_CPU_RMS_NORM_ONCE
#define FURLONG_KERNELS_CPU_RMS_NORM_ONCE
namespace kernels::cpu {
constexpr int64_t kBlock = 16;  // rows whose share of dweight is one sum
// What a backward pass writes. dx: or null. dweight_blocks [blocks, k]: or null.
struct NormGradients {
  const float* dy;
  float *dx, *dweight_blocks;
};
}  // namespace kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE float reciprocal_rms(float sum_of_squares, const NormRows& rows) {
  return 1.0f / std::sqrt(sum_of_squares / static_cast<float>(rows.k) + rows.eps);
}

template <bool kBf16, bool kWeight>
HWY_INLINE void norm_rows(const NormRows& rows, float* to, int64_t begin, int64_t end) {
  const int64_t k = rows.k, plain = k - 2 * rows.turn.pairs;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = rows.x + r * k;
    float* y = to + r * k;
    const V rinv = hn::Set(D(), reciprocal_rms(sum_of_squares(x, k), rows));
    each_vector(k, [&](int64_t i, auto access) HWY_ATTR {
      V v = hn::Mul(access.load(x + i), rinv);
      if constexpr (kWeight) v = hn::Mul(v, access.load(rows.weight + i));
      access.store(round_if<kBf16>(v), y + i);
    });
    if (plain < k) turn_pairs<kBf16>(rows.turn, r, y + plain);
    if (rows.simulated > 0) simulate_row<BlockFormat::e4m3>(y, y, plain, rows.simulated);
  }
}

void norm_range(const NormRows& rows, float* y, int64_t begin, int64_t end) {
  if (rows.weight != nullptr) {
    rows.round_bf16 ? norm_rows<true, true>(rows, y, begin, end) : norm_rows<false, true>(rows, y, begin, end);
  } else {
    rows.round_bf16 ? norm_rows<true, false>(rows, y, begin, end) : norm_rows<false, false>(rows, y, begin, end);
  }
}

template <bool kWeight>
HWY_INLINE V weighted(V dy, const float* weight, int64_t i, auto access) {
  if constexpr (kWeight) return hn::Mul(dy, access.load(weight + i));
  return dy;
}

// dy is turned back already.
template <bool kWeight>
HWY_INLINE void gradient_row(const NormRows& rows, const float* x, const float* dy, float* dx, float* dweight) {
  Chains squares, products;
  each_chain(rows.k, [&](int64_t i, int p, auto access) HWY_ATTR {
    const V v = access.load(x + i);
    squares.add_product(p, v, v);
    products.add_product(p, weighted<kWeight>(access.load(dy + i), rows.weight, i, access), v);
  });
  const float scalar = reciprocal_rms(squares.total(), rows);
  const V rinv = hn::Set(D(), scalar);
  const V mean = hn::Set(D(), scalar * products.total() / static_cast<float>(rows.k));
  each_vector(rows.k, [&](int64_t i, auto access) HWY_ATTR {
    const V u = hn::Mul(access.load(x + i), rinv), g = access.load(dy + i);
    if (dweight != nullptr) access.store(hn::MulAdd(g, u, access.load(dweight + i)), dweight + i);
    if (dx == nullptr) return;
    access.store(hn::Mul(rinv, hn::NegMulAdd(u, mean, weighted<kWeight>(g, rows.weight, i, access))), dx + i);
  });
}

template <bool kWeight>
HWY_INLINE void gradient_block(const NormRows& rows, const NormGradients& gradients, int64_t block, float* scratch) {
  const int64_t k = rows.k, plain = k - 2 * rows.turn.pairs;
  float* dweight = gradients.dweight_blocks == nullptr ? nullptr : gradients.dweight_blocks + block * k;
  if (dweight != nullptr) std::fill(dweight, dweight + k, 0.0f);
  Turn back = rows.turn;
  back.inverse = true;
  for (int64_t r = block * kBlock; r < std::min((block + 1) * kBlock, rows.rows); ++r) {
    const float* dy = gradients.dy + r * k;
    if (plain < k) {
      std::copy(dy, dy + k, scratch);
      turn_pairs<false>(back, r, scratch + plain);
      dy = scratch;
    }
    float* dx = gradients.dx == nullptr ? nullptr : gradients.dx + r * k;
    gradient_row<kWeight>(rows, rows.x + r * k, dy, dx, dweight);
  }
}

void gradient_range(const NormRows& rows, const NormGradients& gradients, int64_t begin, int64_t end, float* scratch) {
  for (int64_t block = begin; block < end; ++block) {
    rows.weight != nullptr ? gradient_block<true>(rows, gradients, block, scratch)
                           : gradient_block<false>(rows, gradients, block, scratch);
  }
}

// to [k] = the rows of blocks [num_blocks, k], added in ascending order.
void add_blocks(const float* blocks, int64_t num_blocks, int64_t k, float* to) {
  std::fill(to, to + k, 0.0f);
  for (int64_t b = 0; b < num_blocks; ++b) {
    each_vector(k, [&](int64_t i, auto access) HWY_ATTR {
      access.store(hn::Add(access.load(to + i), access.load(blocks + b * k + i)), to + i);
    });
  }
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {
HWY_EXPORT(norm_range);
HWY_EXPORT(gradient_range);
HWY_EXPORT(add_blocks);

constexpr int64_t kGrain = 32768;  // values

void check(const NormRows& rows) {
  CHECK(rows.k >= 1 && 2 * rows.turn.pairs <= rows.k && !rows.turn.inverse, "{} pairs of {} dims", rows.turn.pairs,
        rows.k);
}
}  // namespace

void rms_norm(const NormRows& rows, float* y) {
  check(rows);
  const auto run = HWY_DYNAMIC_DISPATCH(norm_range);
  base::parallel_for(rows.rows, std::max<int64_t>(kGrain / rows.k, 1),
                     [&](int64_t begin, int64_t end) { run(rows, y, begin, end); });
}

void rms_norm_backward(const NormRows& rows, const float* dy, float* dx, float* dweight) {
  check(rows);
  CHECK(dweight == nullptr || rows.weight != nullptr);
  const int64_t blocks = (rows.rows + kBlock - 1) / kBlock;
  std::unique_ptr<float[]> sums;
  if (dweight != nullptr) sums.reset(new float[static_cast<size_t>(blocks * rows.k)]);
  const NormGradients gradients{dy, dx, sums.get()};
  const auto run = HWY_DYNAMIC_DISPATCH(gradient_range);
  base::parallel_for(blocks, std::max<int64_t>(kGrain / (rows.k * kBlock), 1), [&](int64_t begin, int64_t end) {
    const std::unique_ptr<float[]> scratch(new float[static_cast<size_t>(rows.k)]);
    run(rows, gradients, begin, end, scratch.get());
  });
  if (dweight != nullptr) HWY_DYNAMIC_DISPATCH(add_blocks)(sums.get(), blocks, rows.k, dweight);
}

}  // namespace kernels::cpu
#endif
