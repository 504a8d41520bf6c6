// Vectors over heads; what a head reads of [H] arrays goes through padded copies.
#include "kernels/cpu/sink_softmax.h"

#include <algorithm>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sink_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Heads = hn::CappedTag<float, 8>;
using HeadVector = hn::Vec<Heads>;
constexpr int64_t kHeadLanes = hn::MaxLanes(Heads());

struct Padded {
  HWY_ALIGN float values[kMaxHeads] = {};

  Padded() = default;
  Padded(const float* from, int64_t count) { std::copy_n(from, count, values); }
  HeadVector at(int64_t h) const { return hn::Load(Heads(), values + h); }
  void set(int64_t h, HeadVector v) { hn::Store(v, Heads(), values + h); }
};

// Highway's makes 0 of NaN.
HWY_INLINE HeadVector exp_keeping_nan(HeadVector x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(Heads(), x)); }

void Exponentials(const HeadScores& s, float* max_H, float* total_H) {
  const Heads d;
  const Padded sink(s.sink_H, s.num_heads);
  Padded max, total;
  for (int64_t h = 0; h < s.num_heads; h += kHeadLanes) {
    float* const scores = s.score + h;
    HeadVector highest = sink.at(h);
    for (int64_t n = 0; n < s.num_keys; ++n) highest = hn::Max(highest, hn::LoadU(d, scores + n * s.stride));
    HeadVector sum = hn::Zero(d);
    for (int64_t n = 0; n < s.num_keys; ++n) {
      const HeadVector e = exp_keeping_nan(hn::Sub(hn::LoadU(d, scores + n * s.stride), highest));
      hn::StoreU(e, d, scores + n * s.stride);
      sum = hn::Add(sum, e);
    }
    max.set(h, highest);
    total.set(h, hn::Add(sum, exp_keeping_nan(hn::Sub(sink.at(h), highest))));
  }
  std::copy_n(max.values, s.num_heads, max_H);
  std::copy_n(total.values, s.num_heads, total_H);
}

void SoftmaxGradients(const HeadGradients& g) {
  const Heads d;
  const HeadScores& s = g.scores;
  const Padded sink(s.sink_H, s.num_heads), max(g.max_H, s.num_heads), total(g.total_H, s.num_heads);
  Padded dsink;
  const HeadVector scale = hn::Set(d, g.scale);
  for (int64_t h = 0; h < s.num_heads; h += kHeadLanes) {
    float *const scores = s.score + h, *const dweight = g.dweight + h;
    const HeadVector share = hn::Div(hn::Set(d, 1.0f), total.at(h));
    HeadVector delta = hn::Zero(d);
    for (int64_t n = 0; n < s.num_keys; ++n) {
      const HeadVector score = hn::LoadU(d, scores + n * s.stride);
      const HeadVector weight = hn::Mul(exp_keeping_nan(hn::Sub(score, max.at(h))), share);
      hn::StoreU(weight, d, scores + n * s.stride);
      delta = hn::MulAdd(weight, hn::LoadU(d, dweight + n * s.stride), delta);
    }
    for (int64_t n = 0; n < s.num_keys; ++n) {
      const HeadVector weight = hn::LoadU(d, scores + n * s.stride);
      const HeadVector centred = hn::Sub(hn::LoadU(d, dweight + n * s.stride), delta);
      hn::StoreU(hn::Mul(hn::Mul(weight, centred), scale), d, dweight + n * s.stride);
    }
    const HeadVector sink_weight = hn::Mul(exp_keeping_nan(hn::Sub(sink.at(h), max.at(h))), share);
    dsink.set(h, hn::Neg(hn::Mul(sink_weight, delta)));
  }
  std::copy_n(dsink.values, s.num_heads, g.dsink_H);
}

// To nearest even; a NaN stays one.
template <class D>
HWY_INLINE hn::Vec<D> nearest_bf16(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::And(hn::Add(bits, hn::Add(hn::Set(du, 0x7fffu), even)), hn::Set(du, 0xffff0000u));
  return hn::IfThenElse(hn::IsNaN(v), v, hn::BitCast(d, rounded));
}

template <class D>
HWY_INLINE void divide_vector(D d, float total, bool round_bf16, float* out) {
  const auto quotient = hn::Div(hn::LoadU(d, out), hn::Set(d, total));
  hn::StoreU(round_bf16 ? nearest_bf16(d, quotient) : quotient, d, out);
}

void DivideHeads(const float* total_H, int64_t num_heads, int64_t dim, bool round_bf16, float* out_HK) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::MaxLanes(d));
  for (int64_t h = 0; h < num_heads; ++h, out_HK += dim) {
    int64_t k = 0;
    for (; k + lanes <= dim; k += lanes) divide_vector(d, total_H[h], round_bf16, out_HK + k);
    for (; k < dim; ++k) divide_vector(one, total_H[h], round_bf16, out_HK + k);
  }
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {

HWY_EXPORT(Exponentials);
HWY_EXPORT(SoftmaxGradients);
HWY_EXPORT(DivideHeads);

void exponentials(const HeadScores& scores, float* max_H, float* total_H) {
  HWY_DYNAMIC_DISPATCH(Exponentials)(scores, max_H, total_H);
}
void softmax_gradients(const HeadGradients& gradients) { HWY_DYNAMIC_DISPATCH(SoftmaxGradients)(gradients); }
void divide_heads(const float* total_H, int64_t num_heads, int64_t dim, bool round_bf16, float* out_HK) {
  HWY_DYNAMIC_DISPATCH(DivideHeads)(total_H, num_heads, dim, round_bf16, out_HK);
}

}  // namespace kernels::cpu
#endif
