// hc_post and its gradient: a token at a time, read once and written once.
#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/hyper_connection.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hyper_connection_post.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/round_inl.h"
#include "kernels/cpu/stream_inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

template <int kM, bool kBf16>
HWY_INLINE void post_token(const HcPost& hc, int64_t t, float* result) {
  constexpr int64_t kSize = kM > 0 ? kM : kMaxStreams;
  const int64_t m = kM > 0 ? kM : hc.num_streams, d = hc.dim;
  const float *f = hc.output + t * d, *x = hc.streams + t * m * d, *post = hc.post + t * m, *comb = hc.comb + t * m * m;
  float* y = result + t * m * d;
  each_vector(d, [&](int64_t at, auto access) HWY_ATTR {
    V streams[kSize];
#pragma GCC unroll 4
    for (int64_t i = 0; i < m; ++i) streams[i] = access.load(x + i * d + at);
    const V out = access.load(f + at);
#pragma GCC unroll 4
    for (int64_t j = 0; j < m; ++j) {
      V sum = hn::Mul(hn::Set(D(), post[j]), out);
#pragma GCC unroll 4
      for (int64_t i = 0; i < m; ++i) sum = hn::MulAdd(hn::Set(D(), comb[i * m + j]), streams[i], sum);
      access.store(round_if<kBf16>(sum), y + j * d + at);
    }
  });
}

void post_range(const HcPost& hc, bool round_bf16, float* result, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    if (hc.num_streams == 4) {
      round_bf16 ? post_token<4, true>(hc, t, result) : post_token<4, false>(hc, t, result);
    } else {
      round_bf16 ? post_token<0, true>(hc, t, result) : post_token<0, false>(hc, t, result);
    }
  }
}

template <int kM>
HWY_INLINE void post_token_back(const HcPost& hc, const HcPostGradient& g, int64_t t) {
  constexpr int64_t kSize = kM > 0 ? kM : kMaxStreams;
  const int64_t m = kM > 0 ? kM : hc.num_streams, d = hc.dim;
  const float *x = hc.streams + t * m * d, *dy = g.dresult + t * m * d;
  const float *post = hc.post + t * m, *comb = hc.comb + t * m * m;
  stream_dots<kM>(dy, m, d, hc.output + t * d, g.dpost + t * m);
  for (int64_t i = 0; i < m; ++i) stream_dots<kM>(dy, m, d, x + i * d, g.dcomb + (t * m + i) * m);
  float *df = g.doutput + t * d, *dx = g.dstreams + t * m * d;
  each_vector(d, [&](int64_t at, auto access) HWY_ATTR {
    V dout[kSize];
#pragma GCC unroll 4
    for (int64_t j = 0; j < m; ++j) dout[j] = access.load(dy + j * d + at);
    V sum = hn::Mul(hn::Set(D(), post[0]), dout[0]);
#pragma GCC unroll 4
    for (int64_t j = 1; j < m; ++j) sum = hn::MulAdd(hn::Set(D(), post[j]), dout[j], sum);
    access.store(sum, df + at);
#pragma GCC unroll 4
    for (int64_t i = 0; i < m; ++i) {
      V stream = hn::Mul(hn::Set(D(), comb[i * m]), dout[0]);
#pragma GCC unroll 4
      for (int64_t j = 1; j < m; ++j) stream = hn::MulAdd(hn::Set(D(), comb[i * m + j]), dout[j], stream);
      access.store(stream, dx + i * d + at);
    }
  });
}

void post_range_back(const HcPost& hc, const HcPostGradient& g, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    hc.num_streams == 4 ? post_token_back<4>(hc, g, t) : post_token_back<0>(hc, g, t);
  }
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {
HWY_EXPORT(post_range);
HWY_EXPORT(post_range_back);

constexpr int64_t kGrain = 32768;  // values of streams

int64_t token_grain(const HcPost& hc) {
  CHECK(hc.num_streams >= 1 && hc.num_streams <= kMaxStreams, "{} streams", hc.num_streams);
  return std::max<int64_t>(kGrain / std::max<int64_t>(hc.num_streams * hc.dim, 1), 1);
}
}  // namespace

void hc_post(const HcPost& post, bool round_bf16, float* result) {
  const auto run = HWY_DYNAMIC_DISPATCH(post_range);
  base::parallel_for(post.tokens, token_grain(post),
                     [&](int64_t begin, int64_t end) { run(post, round_bf16, result, begin, end); });
}

void hc_post_backward(const HcPost& post, const HcPostGradient& gradient) {
  const auto run = HWY_DYNAMIC_DISPATCH(post_range_back);
  base::parallel_for(post.tokens, token_grain(post),
                     [&](int64_t begin, int64_t end) { run(post, gradient, begin, end); });
}

}  // namespace kernels::cpu
#endif
