// hc_pre and Sinkhorn: a tile of tokens at a time, whose streams stay in the cache from the mix to the collection.
// Gates run with the tokens of a tile in the lanes of vectors.
#include "kernels/cpu/hyper_connection.h"

#include <cmath>
#include <memory>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hyper_connection.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/round_inl.h"
#include "kernels/cpu/sinkhorn_inl.h"
#include "kernels/cpu/stream_inl.h"

#ifndef FURLONG_KERNELS_CPU_HYPER_CONNECTION_ONCE
#define FURLONG_KERNELS_CPU_HYPER_CONNECTION_ONCE
namespace kernels::cpu {
constexpr int64_t kTile = 16;  // tokens
constexpr int64_t kMaxRows = (2 + kMaxStreams) * kMaxStreams;

inline int64_t num_rows(const HcPre& hc) { return hc.head ? hc.num_streams : (2 + hc.num_streams) * hc.num_streams; }

// Gradients that the weights' sums need of all tokens.
struct MixGradient {
  float *dlogits, *draw;  // [T, X]
};

// Tokens [first, first + count) of a pass.
struct Tokens {
  int64_t first, count;
};
}  // namespace kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {
namespace {

// The mix of up to kWidth tokens, one per lane.
struct GateLanes {
  HWY_ALIGN float raw[kMaxRows * kWidth];
  HWY_ALIGN float logits[kMaxRows * kWidth];
  V rinv;

  static HWY_INLINE int64_t part_of(const HcPre& hc, int64_t row) { return std::min<int64_t>(row / hc.num_streams, 2); }

  HWY_INLINE void load(const HcPre& hc, const float* raw_tokens, const float* rinv_tokens, int64_t count) {
    const int64_t rows = num_rows(hc);
    HWY_ALIGN float rinv_lanes[kWidth];
    to_lanes(rinv_tokens, 1, count, 1, rinv_lanes);
    rinv = hn::Load(D(), rinv_lanes);
    to_lanes(raw_tokens, rows, count, rows, raw);
    for (int64_t x = 0; x < rows; ++x) {
      const V mix = hn::Mul(hn::Load(D(), raw + x * kWidth), rinv);
      const V scale = hn::Set(D(), hc.scale[part_of(hc, x)]), base = hn::Set(D(), hc.base[x]);
      hn::Store(hn::MulAdd(mix, scale, base), D(), logits + x * kWidth);
    }
  }
};

// pre, post and comb of up to kWidth tokens from their mix. weights [count, M]: pre.
template <int kM>
HWY_INLINE void gates(const HcPre& hc, const float* raw, const float* rinv, int64_t count, const HcPreResult& to,
                      float* weights) {
  const int64_t m = hc.num_streams;
  GateLanes lanes;
  lanes.load(hc, raw, rinv, count);
  const V eps = hn::Set(D(), hc.hc_eps);
  for (int64_t j = 0; j < m; ++j) {
    float* z = lanes.logits + j * kWidth;
    hn::Store(hn::Add(sigmoid(hn::Load(D(), z)), eps), D(), z);
  }
  from_lanes(lanes.logits, m, count, m, weights);
  if (hc.head) return;
  for (int64_t j = m; j < 2 * m; ++j) {
    float* z = lanes.logits + j * kWidth;
    hn::Store(hn::Mul(hn::Set(D(), 2.0f), sigmoid(hn::Load(D(), z))), D(), z);
  }
  from_lanes(lanes.logits + m * kWidth, m, count, m, to.post);
  float* matrix = lanes.logits + 2 * m * kWidth;
  SinkhornLanes<kM> lanes_of_comb(m, hc.sinkhorn_iters, hc.hc_eps);
  lanes_of_comb.run(matrix, nullptr);
  lanes_of_comb.store(matrix);
  from_lanes(matrix, m * m, count, m * m, to.comb);
}

// input[t] = sum over streams of weights[t, i] * streams[t, i], rounded.
template <int kM, bool kBf16>
HWY_INLINE void collect(const HcPre& hc, Tokens tokens, const float* weights, float* input) {
  const int64_t m = kM > 0 ? kM : hc.num_streams, d = hc.dim;
  for (int64_t t = 0; t < tokens.count; ++t) {
    const float *x = hc.streams + (tokens.first + t) * m * d, *w = weights + t * m;
    float* y = input + (tokens.first + t) * d;
    each_vector(d, [&](int64_t i, auto access) HWY_ATTR {
      V sum = hn::Mul(hn::Set(D(), w[0]), access.load(x + i));
#pragma GCC unroll 4
      for (int64_t s = 1; s < m; ++s) sum = hn::MulAdd(hn::Set(D(), w[s]), access.load(x + s * d + i), sum);
      access.store(round_if<kBf16>(sum), y + i);
    });
  }
}

template <int kM>
HWY_INLINE void pre_tile(const HcPre& hc, const HcPreResult& to, Tokens tokens) {
  const int64_t m = hc.num_streams, width = m * hc.dim, rows = num_rows(hc), first = tokens.first;
  float raw_tile[kTile * kMaxRows], rinv_tile[kTile], weights[kTile * kMaxStreams];
  float* raw = to.raw == nullptr ? raw_tile : to.raw + first * rows;
  float* rinv = to.rinv == nullptr ? rinv_tile : to.rinv + first;
  const float* x = hc.streams + first * width;
  Product mix;
  mix.input = x, mix.input_stride = width, mix.output = raw, mix.output_stride = rows;
  mix.m = tokens.count, mix.weight = hc.fn;
  multiply(mix);
  for (int64_t t = 0; t < tokens.count; ++t) {
    rinv[t] = 1.0f / std::sqrt(sum_of_squares(x + t * width, width) / static_cast<float>(width) + hc.norm_eps);
  }
  for (int64_t t = 0; t < tokens.count; t += kWidth) {
    HcPreResult lanes_to = to;
    if (!hc.head) lanes_to.post += (first + t) * m, lanes_to.comb += (first + t) * m * m;
    gates<kM>(hc, raw + t * rows, rinv + t, std::min<int64_t>(kWidth, tokens.count - t), lanes_to, weights + t * m);
  }
  to.round_bf16 ? collect<kM, true>(hc, tokens, weights, to.input) : collect<kM, false>(hc, tokens, weights, to.input);
}

void pre_range(const HcPre& hc, const HcPreResult& to, int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += kTile) {
    const Tokens tokens{first, std::min(kTile, end - first)};
    hc.num_streams == 4 ? pre_tile<4>(hc, to, tokens) : pre_tile<0>(hc, to, tokens);
  }
}

// What the gradient of up to kWidth tokens reads and writes; pointers stand at their first token.
struct GateGradient {
  const float *raw, *rinv, *dpre, *dpost, *dcomb;
  float *weights, *dlogits, *draw, *shrink;  // shrink [count]: factor of x in dx (spec 3.6)
  float* trail;
};

// Gradient of the logits, in lanes, from those of pre, post and comb.
template <int kM>
HWY_INLINE void logit_gradients(const HcPre& hc, const GateGradient& g, int64_t count, GateLanes& lanes, float* dz) {
  const int64_t m = hc.num_streams;
  const V one = hn::Set(D(), 1.0f), eps = hn::Set(D(), hc.hc_eps);
  to_lanes(g.dpre, m, count, m, dz);
  for (int64_t j = 0; j < m; ++j) {
    const V s = sigmoid(hn::Load(D(), lanes.logits + j * kWidth)), d = hn::Load(D(), dz + j * kWidth);
    hn::Store(hn::Add(s, eps), D(), lanes.logits + j * kWidth);
    hn::Store(hn::Mul(d, hn::Mul(s, hn::Sub(one, s))), D(), dz + j * kWidth);
  }
  from_lanes(lanes.logits, m, count, m, g.weights);
  if (hc.head) return;
  float *dpost = dz + m * kWidth, *dcomb = dz + 2 * m * kWidth, *matrix = lanes.logits + 2 * m * kWidth;
  to_lanes(g.dpost, m, g.dpost == nullptr ? 0 : count, m, dpost);
  for (int64_t j = 0; j < m; ++j) {
    const V s = sigmoid(hn::Load(D(), lanes.logits + (m + j) * kWidth)), d = hn::Load(D(), dpost + j * kWidth);
    hn::Store(hn::Mul(hn::Add(d, d), hn::Mul(s, hn::Sub(one, s))), D(), dpost + j * kWidth);
  }
  to_lanes(g.dcomb, m * m, g.dcomb == nullptr ? 0 : count, m * m, dcomb);
  SinkhornLanes<kM> lanes_of_comb(m, hc.sinkhorn_iters, hc.hc_eps);
  lanes_of_comb.run(matrix, g.trail);
  lanes_of_comb.run_back(matrix, g.trail, dcomb);
}

template <int kM>
HWY_INLINE void gates_back(const HcPre& hc, const GateGradient& g, int64_t count) {
  const int64_t rows = num_rows(hc);
  GateLanes lanes;
  HWY_ALIGN float dz[kMaxRows * kWidth], shrink[kWidth];
  lanes.load(hc, g.raw, g.rinv, count);
  logit_gradients<kM>(hc, g, count, lanes, dz);
  from_lanes(dz, rows, count, rows, g.dlogits);
  V sum = hn::Zero(D());
  for (int64_t x = 0; x < rows; ++x) {
    const V dmix = hn::Mul(hn::Load(D(), dz + x * kWidth), hn::Set(D(), hc.scale[GateLanes::part_of(hc, x)]));
    sum = hn::MulAdd(dmix, hn::Load(D(), lanes.raw + x * kWidth), sum);
    hn::Store(hn::Mul(dmix, lanes.rinv), D(), dz + x * kWidth);
  }
  from_lanes(dz, rows, count, rows, g.draw);
  const V cube = hn::Mul(hn::Mul(lanes.rinv, lanes.rinv), lanes.rinv);
  const V width = hn::Set(D(), static_cast<float>(hc.num_streams * hc.dim));
  hn::Store(hn::Mul(hn::Div(cube, width), sum), D(), shrink);
  from_lanes(shrink, 1, count, 1, g.shrink);
}

// dx = (fn^T draw, which is there already) + pre * dy - shrink * x
template <int kM>
HWY_INLINE void add_direct_gradients(const HcPre& hc, const HcPreGradient& g, int64_t token, const float* weights,
                                     float shrink) {
  const int64_t m = kM > 0 ? kM : hc.num_streams, d = hc.dim;
  const float *x = hc.streams + token * m * d, *dy = g.dinput + token * d;
  float* dx = g.dstreams + token * m * d;
  const V less = hn::Set(D(), shrink);
  each_vector(d, [&](int64_t i, auto access) HWY_ATTR {
    const V dyi = access.load(dy + i);
#pragma GCC unroll 4
    for (int64_t s = 0; s < m; ++s) {
      const int64_t at = s * d + i;
      const V v = hn::MulAdd(hn::Set(D(), weights[s]), dyi, access.load(dx + at));
      access.store(hn::NegMulAdd(less, access.load(x + at), v), dx + at);
    }
  });
}

template <int kM>
HWY_INLINE void pre_tile_back(const HcPre& hc, const HcPreGradient& g, const MixGradient& mix, Tokens tokens,
                              float* trail) {
  const int64_t m = hc.num_streams, width = m * hc.dim, rows = num_rows(hc), first = tokens.first;
  float dpre[kTile * kMaxStreams], weights[kTile * kMaxStreams], shrink[kTile];
  for (int64_t t = 0; t < tokens.count; ++t) {
    stream_dots<kM>(hc.streams + (first + t) * width, m, hc.dim, g.dinput + (first + t) * hc.dim, dpre + t * m);
  }
  for (int64_t t = 0; t < tokens.count; t += kWidth) {
    const int64_t at = first + t;
    const GateGradient lanes{g.raw + at * rows,
                             g.rinv + at,
                             dpre + t * m,
                             g.dpost == nullptr ? nullptr : g.dpost + at * m,
                             g.dcomb == nullptr ? nullptr : g.dcomb + at * m * m,
                             weights + t * m,
                             mix.dlogits + at * rows,
                             mix.draw + at * rows,
                             shrink + t,
                             trail};
    gates_back<kM>(hc, lanes, std::min<int64_t>(kWidth, tokens.count - t));
  }
  Product back;
  back.input = mix.draw + first * rows, back.input_stride = rows;
  back.output = g.dstreams + first * width, back.output_stride = width;
  back.m = tokens.count, back.weight = g.fn_transposed;
  multiply(back);
  for (int64_t t = 0; t < tokens.count; ++t) add_direct_gradients<kM>(hc, g, first + t, weights + t * m, shrink[t]);
}

void pre_range_back(const HcPre& hc, const HcPreGradient& g, const MixGradient& mix, int64_t begin, int64_t end) {
  std::unique_ptr<float[]> trail;
  if (!hc.head) trail.reset(new float[static_cast<size_t>(trail_size(hc.num_streams, hc.sinkhorn_iters))]);
  for (int64_t first = begin; first < end; first += kTile) {
    const Tokens tokens{first, std::min(kTile, end - first)};
    hc.num_streams == 4 ? pre_tile_back<4>(hc, g, mix, tokens, trail.get())
                        : pre_tile_back<0>(hc, g, mix, tokens, trail.get());
  }
}

// dbase = sum over tokens of dlogits, dscale = that of dlogits * raw * rinv, summed over the rows of a part.
void sum_weights(const HcPre& hc, const HcPreGradient& g, const float* dlogits) {
  const int64_t rows = num_rows(hc);
  float scale[kMaxRows] = {};
  std::fill(g.dbase, g.dbase + rows, 0.0f);
  for (int64_t t = 0; t < hc.tokens; ++t) {
    const V rinv = hn::Set(D(), g.rinv[t]);
    each_vector(rows, [&](int64_t x, auto access) HWY_ATTR {
      const V dz = access.load(dlogits + t * rows + x), mix = hn::Mul(access.load(g.raw + t * rows + x), rinv);
      access.store(hn::Add(access.load(g.dbase + x), dz), g.dbase + x);
      access.store(hn::MulAdd(dz, mix, access.load(scale + x)), scale + x);
    });
  }
  std::fill(g.dscale, g.dscale + (hc.head ? 1 : 3), 0.0f);
  for (int64_t x = 0; x < rows; ++x) g.dscale[GateLanes::part_of(hc, x)] += scale[x];
}

template <int kM>
HWY_INLINE void sinkhorn_lanes(const Sinkhorn& step, const float* dcomb, float* to, int64_t count, float* trail) {
  const int64_t m = step.num_streams, size = m * m;
  HWY_ALIGN float matrix[kMaxStreams * kMaxStreams * kWidth], gradient[kMaxStreams * kMaxStreams * kWidth];
  to_lanes(step.logits, size, count, size, matrix);
  SinkhornLanes<kM> lanes_of_comb(m, step.iters, step.eps);
  lanes_of_comb.run(matrix, trail);
  if (dcomb == nullptr) {
    lanes_of_comb.store(gradient);
  } else {
    to_lanes(dcomb, size, count, size, gradient);
    lanes_of_comb.run_back(matrix, trail, gradient);
  }
  from_lanes(gradient, size, count, size, to);
}

// comb, or with dcomb the gradient of the logits.
void sinkhorn_range(const Sinkhorn& step, const float* dcomb, float* to) {
  const int64_t size = step.num_streams * step.num_streams;
  std::unique_ptr<float[]> trail;
  if (dcomb != nullptr) trail.reset(new float[static_cast<size_t>(trail_size(step.num_streams, step.iters))]);
  for (int64_t t = 0; t < step.tokens; t += kWidth) {
    Sinkhorn lanes = step;
    lanes.logits += t * size;
    const float* dlanes = dcomb == nullptr ? nullptr : dcomb + t * size;
    const int64_t count = std::min<int64_t>(kWidth, step.tokens - t);
    step.num_streams == 4 ? sinkhorn_lanes<4>(lanes, dlanes, to + t * size, count, trail.get())
                          : sinkhorn_lanes<0>(lanes, dlanes, to + t * size, count, trail.get());
  }
}

}  // namespace
}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {
HWY_EXPORT(pre_range);
HWY_EXPORT(pre_range_back);
HWY_EXPORT(sum_weights);
HWY_EXPORT(sinkhorn_range);

constexpr int64_t kGrain = 32768;  // values of streams

int64_t token_grain(const HcPre& hc) {
  const int64_t tile = kTile * hc.num_streams * hc.dim;
  return kTile * std::max<int64_t>(kGrain / std::max<int64_t>(tile, 1), 1);
}

void check(const HcPre& hc) {
  CHECK(hc.num_streams >= 1 && hc.num_streams <= kMaxStreams && hc.dim >= 1, "{} streams of {}", hc.num_streams,
        hc.dim);
  CHECK(hc.head || hc.sinkhorn_iters >= 1, "{} iterations", hc.sinkhorn_iters);
  CHECK(hc.fn.n == num_rows(hc) && hc.fn.k == hc.num_streams * hc.dim, "fn is [{}, {}]", hc.fn.n, hc.fn.k);
}
}  // namespace

void hc_pre(const HcPre& pre, const HcPreResult& result) {
  check(pre);
  const auto run = HWY_DYNAMIC_DISPATCH(pre_range);
  base::parallel_for(pre.tokens, token_grain(pre), [&](int64_t begin, int64_t end) { run(pre, result, begin, end); });
}

void hc_pre_backward(const HcPre& pre, const HcPreGradient& gradient) {
  check(pre);
  const int64_t rows = num_rows(pre), width = pre.num_streams * pre.dim;
  CHECK(gradient.fn_transposed.n == width && gradient.fn_transposed.k == rows);
  const auto count = static_cast<size_t>(pre.tokens * rows);
  const std::unique_ptr<float[]> dlogits(new float[count]), draw(new float[count]);
  const MixGradient mix{dlogits.get(), draw.get()};
  const auto run = HWY_DYNAMIC_DISPATCH(pre_range_back);
  base::parallel_for(pre.tokens, token_grain(pre),
                     [&](int64_t begin, int64_t end) { run(pre, gradient, mix, begin, end); });
  if (gradient.dfn == nullptr) return;
  HWY_DYNAMIC_DISPATCH(sum_weights)(pre, gradient, dlogits.get());
  OuterSum outer;
  outer.dy = draw.get(), outer.dy_stride = rows, outer.x = pre.streams, outer.x_stride = width;
  outer.m = pre.tokens, outer.n = rows, outer.k = width, outer.out = gradient.dfn;
  add_outer(outer);
}

void sinkhorn(const Sinkhorn& step, float* comb) {
  CHECK(step.num_streams >= 1 && step.num_streams <= kMaxStreams && step.iters >= 1);
  HWY_DYNAMIC_DISPATCH(sinkhorn_range)(step, nullptr, comb);
}

void sinkhorn_backward(const Sinkhorn& step, const float* dcomb, float* dlogits) {
  CHECK(step.num_streams >= 1 && step.num_streams <= kMaxStreams && step.iters >= 1);
  HWY_DYNAMIC_DISPATCH(sinkhorn_range)(step, dcomb, dlogits);
}

}  // namespace kernels::cpu
#endif
