// Vectors over heads; what a head reads of [H] arrays goes through padded copies.
#include "kernels/cpu/sink_softmax.h"

#include <algorithm>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sink_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp_inl.h"
#include "kernels/cpu/round_inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

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
      const HeadVector e = exp_keeping_nan(d, hn::Sub(hn::LoadU(d, scores + n * s.stride), highest));
      hn::StoreU(e, d, scores + n * s.stride);
      sum = hn::Add(sum, e);
    }
    max.set(h, highest);
    total.set(h, hn::Add(sum, exp_keeping_nan(d, hn::Sub(sink.at(h), highest))));
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
      const HeadVector weight = hn::Mul(exp_keeping_nan(d, hn::Sub(score, max.at(h))), share);
      hn::StoreU(weight, d, scores + n * s.stride);
      delta = hn::MulAdd(weight, hn::LoadU(d, dweight + n * s.stride), delta);
    }
    for (int64_t n = 0; n < s.num_keys; ++n) {
      const HeadVector weight = hn::LoadU(d, scores + n * s.stride);
      const HeadVector centred = hn::Sub(hn::LoadU(d, dweight + n * s.stride), delta);
      hn::StoreU(hn::Mul(hn::Mul(weight, centred), scale), d, dweight + n * s.stride);
    }
    const HeadVector sink_weight = hn::Mul(exp_keeping_nan(d, hn::Sub(sink.at(h), max.at(h))), share);
    dsink.set(h, hn::Neg(hn::Mul(sink_weight, delta)));
  }
  std::copy_n(dsink.values, s.num_heads, g.dsink_H);
}

void DivideHeads(const float* total_H, int64_t num_heads, int64_t dim, bool round_bf16, float* out_HK) {
  for (int64_t h = 0; h < num_heads; ++h, out_HK += dim) {
    const V total = hn::Set(D(), total_H[h]);
    each_vector(dim, [&](int64_t k, auto access) HWY_ATTR {
      const V quotient = hn::Div(access.load(out_HK + k), total);
      access.store(round_bf16 ? round_to_bf16(quotient) : quotient, out_HK + k);
    });
  }
}

}  // namespace
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
