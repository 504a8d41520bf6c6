// Elementwise AdamW and the sum of squares.
#include "kernels/cpu/adamw.h"

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef FURLONG_KERNELS_CPU_ADAMW_BLOCK
#define FURLONG_KERNELS_CPU_ADAMW_BLOCK
namespace kernels::cpu {

constexpr int64_t kBlock = 4096, kLanes = 8;

}  // namespace kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// One vector's elements.
template <class D>
HWY_INLINE void update(D d, float* master, float* m, float* v, const float* grad, const AdamwFactors& f) {
  const auto g = hn::Mul(hn::Set(d, f.clip), hn::LoadU(d, grad));
  const auto mean = hn::Add(hn::Mul(hn::Set(d, f.beta1), hn::LoadU(d, m)), hn::Mul(hn::Set(d, f.rest1), g));
  const auto square =
      hn::Add(hn::Mul(hn::Set(d, f.beta2), hn::LoadU(d, v)), hn::Mul(hn::Mul(hn::Set(d, f.rest2), g), g));
  const auto below = hn::Add(hn::Mul(hn::Sqrt(square), hn::Set(d, f.root)), hn::Set(d, f.eps));
  const auto move = hn::Div(hn::Mul(hn::Set(d, f.rate), mean), below);
  hn::StoreU(mean, d, m);
  hn::StoreU(square, d, v);
  hn::StoreU(hn::Sub(hn::Mul(hn::Set(d, f.keep), hn::LoadU(d, master)), move), d, master);
}

void Adamw(float* master, float* m, float* v, const float* grad, int64_t count, const AdamwFactors& factors) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const int64_t width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= count; i += width) update(d, master + i, m + i, v + i, grad + i, factors);
  for (; i < count; ++i) update(one, master + i, m + i, v + i, grad + i, factors);
}

double SumOfBlock(const float* values, int64_t count) {
  using D64 = hn::CappedTag<double, kLanes>;
  const D64 d64;
  const hn::Rebind<float, D64> d32;
  constexpr int64_t kWidth = hn::MaxLanes(D64()), kParts = kLanes / kWidth;
  hn::Vec<D64> parts[kParts];
  for (auto& part : parts) part = hn::Zero(d64);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kParts; ++j) {
      const auto x = hn::PromoteTo(d64, hn::LoadU(d32, values + i + j * kWidth));
      parts[j] = hn::MulAdd(x, x, parts[j]);  // the square is exact, so fused or not is the same
    }
  }
  HWY_ALIGN double lanes[kLanes];
  for (int64_t j = 0; j < kParts; ++j) hn::Store(parts[j], d64, lanes + j * kWidth);
  for (int64_t lane = 0; i + lane < count; ++lane) lanes[lane] += double{values[i + lane]} * values[i + lane];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {

HWY_EXPORT(Adamw);
HWY_EXPORT(SumOfBlock);

constexpr int64_t kUpdateGrain = 16384;  // elements; about 20 microseconds
constexpr int64_t kBlocksPerRange = 16;

}  // namespace

void adamw(float* master, float* m, float* v, const float* grad, int64_t count, const AdamwFactors& factors) {
  base::parallel_for(count, kUpdateGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Adamw)(master + begin, m + begin, v + begin, grad + begin, end - begin, factors);
  });
}

double sum_of_squares(const float* values, int64_t count) {
  std::vector<double> sums(static_cast<size_t>((count + kBlock - 1) / kBlock));
  base::parallel_for(static_cast<int64_t>(sums.size()), kBlocksPerRange, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      sums[static_cast<size_t>(b)] =
          HWY_DYNAMIC_DISPATCH(SumOfBlock)(values + b * kBlock, std::min(kBlock, count - b * kBlock));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace kernels::cpu
#endif
