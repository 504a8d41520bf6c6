// The counting sort, and the kernels over rows.
#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/experts.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/round_inl.h"
// After highway.h.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

// g and u after their clamps, the logistic function of g and its complement (each to full relative accuracy).
struct Gated {
  V gate, up, s, rest;
};

HWY_INLINE V at_most(V v, V limit) { return hn::IfThenElse(hn::Gt(v, limit), limit, v); }  // NaN stays NaN

HWY_INLINE Gated gated(V gate, V up, float limit) {
  const D d;
  if (limit > 0) {
    const V top = hn::Set(d, limit);
    gate = at_most(gate, top);
    up = hn::Neg(at_most(hn::Neg(at_most(up, top)), top));
  }
  const V e = hn::Exp(d, hn::Neg(hn::Abs(gate))), one = hn::Set(d, 1.0f);
  const V large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
  const auto positive = hn::Ge(gate, hn::Zero(d));
  return {gate, up, hn::IfThenElse(positive, large, small), hn::IfThenElse(positive, small, large)};
}

HWY_INLINE float weight_of(const Swiglu& input, int64_t row) {
  if (input.weight == nullptr) return 1;
  return input.weight[input.pair != nullptr ? input.pair[row] : row];
}

void swiglu_rows(const Swiglu& input, float* h, int64_t begin, int64_t end) {
  const float limit = input.limit;
  const bool round = input.round_bf16;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * input.width;
    const float *gate = input.gate + at, *up = input.up + at;
    const V weight = hn::Set(D(), weight_of(input, row));
    float* out = h + at;
    each_vector(input.width, [&](int64_t i, auto access) HWY_ATTR {
      const Gated part = gated(access.load(gate + i), access.load(up + i), limit);
      const V value = hn::Mul(weight, hn::Mul(hn::Mul(part.gate, part.s), part.up));
      access.store(round ? round_to_bf16(value) : value, out + i);
    });
    if (input.simulate) simulate_row<BlockFormat::e4m3>(out, out, input.width, 128);
  }
}

void gradient_rows(const Swiglu& input, const float* dh, const SwigluGradient& gradient, int64_t begin, int64_t end) {
  const D d;
  const V one = hn::Set(d, 1.0f), limit = hn::Set(d, input.limit > 0 ? input.limit : HUGE_VALF);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * input.width;
    const V weight = hn::Set(d, weight_of(input, row));
    Chains dweight;
    each_chain(input.width, [&](int64_t i, int chain, auto access) HWY_ATTR {
      const V gate = access.load(input.gate + at + i), up = access.load(input.up + at + i);
      const V dy = access.load(dh + at + i), dproduct = hn::Mul(weight, dy);
      const Gated part = gated(gate, up, input.limit);
      const V silu = hn::Mul(part.gate, part.s), slope = hn::Mul(part.s, hn::MulAdd(part.gate, part.rest, one));
      const V dgate = hn::Mul(hn::Mul(dproduct, part.up), slope), dup = hn::Mul(dproduct, silu);
      dweight.add_product(chain, hn::Mul(silu, part.up), dy);
      access.store(hn::IfThenZeroElse(hn::Gt(gate, limit), dgate), gradient.dgate + at + i);
      access.store(hn::IfThenZeroElse(hn::Gt(hn::Abs(up), limit), dup), gradient.dup + at + i);
    });
    if (gradient.dweight == nullptr) continue;
    gradient.dweight[input.pair != nullptr ? input.pair[row] : row] = dweight.total();
  }
}

void sum_rows(const PairSum& sum, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const float* pairs = sum.rows + t * sum.per_token * sum.width;
    const int64_t at = t * sum.width;
    each_vector(sum.width, [&](int64_t i, auto access) HWY_ATTR {
      V total = access.load(pairs + i);
      if (sum.start != nullptr) total = hn::Add(access.load(sum.start + at + i), total);
      for (int64_t a = 1; a < sum.per_token; ++a) total = hn::Add(total, access.load(pairs + a * sum.width + i));
      if (sum.end != nullptr) total = hn::Add(total, access.load(sum.end + at + i));
      access.store(sum.round_bf16 ? round_to_bf16(total) : total, sum.out + at + i);
    });
  }
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {

HWY_EXPORT(swiglu_rows);
HWY_EXPORT(gradient_rows);
HWY_EXPORT(sum_rows);

// Elements that take about 20 microseconds.
constexpr int64_t kGrainActivated = 16384, kGrainSummed = 65536;

int64_t grain(int64_t elements, int64_t per_row) {
  return std::max<int64_t>(elements / std::max<int64_t>(per_row, 1), 1);
}

}  // namespace

void ExpertRows::sort(const int32_t* expert, int64_t tokens, int64_t per_token, int64_t num_experts) {
  const int64_t pairs = tokens * per_token;
  CHECK(pairs <= std::numeric_limits<int32_t>::max(), "{} tokens of {} experts each", tokens, per_token);
  next_.assign(static_cast<size_t>(num_experts), 0);
  for (int64_t i = 0; i < pairs; ++i) {
    CHECK(expert[i] >= 0 && expert[i] < num_experts, "token {}: expert {} of {}", i / per_token, expert[i],
          num_experts);
    ++next_[static_cast<size_t>(expert[i])];
  }
  groups_.clear();
  int32_t first = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int32_t count = std::exchange(next_[static_cast<size_t>(e)], first);
    if (count > 0) groups_.push_back({e, first, count});
    first += count;
  }
  token_.resize(static_cast<size_t>(pairs));
  pair_.resize(static_cast<size_t>(pairs));
  int64_t i = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    for (const int64_t end = i + per_token; i < end; ++i) {
      const auto row = static_cast<size_t>(next_[static_cast<size_t>(expert[i])]++);
      token_[row] = static_cast<int32_t>(t);
      pair_[row] = static_cast<int32_t>(i);
    }
  }
}

void swiglu(const Swiglu& input, float* h) {
  const auto run = HWY_DYNAMIC_DISPATCH(swiglu_rows);
  base::parallel_for(input.rows, grain(kGrainActivated, input.width),
                     [&](int64_t begin, int64_t end) { run(input, h, begin, end); });
}

void swiglu_gradient(const Swiglu& input, const float* dh, const SwigluGradient& gradient) {
  const auto run = HWY_DYNAMIC_DISPATCH(gradient_rows);
  base::parallel_for(input.rows, grain(kGrainActivated, input.width),
                     [&](int64_t begin, int64_t end) { run(input, dh, gradient, begin, end); });
}

void sum_pairs(const PairSum& sum) {
  const auto run = HWY_DYNAMIC_DISPATCH(sum_rows);
  base::parallel_for(sum.tokens, grain(kGrainSummed, sum.width * sum.per_token),
                     [&](int64_t begin, int64_t end) { run(sum, begin, end); });
}

}  // namespace kernels::cpu
#endif  // HWY_ONCE
