// Sinkhorn normalisation of small matrices, one per lane: the lanes of a vector are tokens. With the gradient, which
// walks the recorded steps back (spec 3.6). Compiled once per instruction set, as row_inl.h.
//
// A matrix lies in memory as [m * m] vectors. kM: m, where the compiler shall know it; 0: at run time.
#if defined(FURLONG_KERNELS_CPU_SINKHORN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FURLONG_KERNELS_CPU_SINKHORN_INL_H
#undef FURLONG_KERNELS_CPU_SINKHORN_INL_H
#else
#define FURLONG_KERNELS_CPU_SINKHORN_INL_H
#endif

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/hyper_connection.h"
#include "kernels/cpu/row_inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

// exp(x) for x <= 0; a NaN stays one.
HWY_INLINE V exp_of_negative(V x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::CallExp(D(), x)); }

HWY_INLINE V sigmoid(V z) {
  const V one = hn::Set(D(), 1.0f), small = exp_of_negative(hn::Neg(hn::Abs(z)));
  return hn::Div(hn::IfThenElse(hn::Ge(z, hn::Zero(D())), one, small), hn::Add(one, small));
}

// Floats that the steps of one group of lanes leave for the gradient.
constexpr int64_t trail_size(int64_t m, int64_t iters) { return (2 * iters - 1) * (m * m + m) * kWidth; }

template <int kM>
struct SinkhornLanes {
  static constexpr int kSize = kM > 0 ? kM : kMaxStreams;
  int m;
  int64_t iters;
  float eps;
  V c[kSize * kSize];  // row j, column k at j * m + k; m is kM where that is known

  HWY_INLINE SinkhornLanes(int64_t num_streams, int64_t num_iters, float sum_eps)
      : m(static_cast<int>(num_streams)), iters(num_iters), eps(sum_eps) {
    for (V& element : c) element = hn::Zero(D());
  }

  HWY_INLINE int size() const { return kM > 0 ? kM : m; }

  HWY_INLINE void store(float* matrix) const {
    const int count = size() * size();
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) hn::Store(c[i], D(), matrix + i * kWidth);
  }

  // c = softmax over each row. matrix: its logits, replaced by the softmax.
  HWY_INLINE void softmax_rows(float* matrix) {
    for (int j = 0; j < size(); ++j) {
      float* row = matrix + j * size() * kWidth;
      V highest = hn::Load(D(), row), sum = hn::Zero(D());
      for (int k = 1; k < size(); ++k) highest = hn::Max(highest, hn::Load(D(), row + k * kWidth));
      for (int k = 0; k < size(); ++k) {
        const V e = exp_of_negative(hn::Sub(hn::Load(D(), row + k * kWidth), highest));
        sum = hn::Add(sum, e);
        hn::Store(e, D(), row + k * kWidth);
      }
      const V reciprocal = hn::Div(hn::Set(D(), 1.0f), sum);
      for (int k = 0; k < size(); ++k) {
        hn::Store(hn::Mul(hn::Load(D(), row + k * kWidth), reciprocal), D(), row + k * kWidth);
      }
    }
    const V small = hn::Set(D(), eps);
    const int count = size() * size();
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) c[i] = hn::Add(hn::Load(D(), matrix + i * kWidth), small);
  }

  // Each line divided by its sum: the rows, or (across) the columns. trail: what the step leaves, or null.
  HWY_INLINE void normalise(bool across, float* trail) {
    const int n = size(), count = n * n, line = across ? 1 : n, element = across ? n : 1;
    const V one = hn::Set(D(), 1.0f), small = hn::Set(D(), eps);
#pragma GCC unroll 4
    for (int a = 0; a < n; ++a) {
      V sum = c[a * line];
#pragma GCC unroll 4
      for (int b = 1; b < n; ++b) sum = hn::Add(sum, c[a * line + b * element]);
      const V reciprocal = hn::Div(one, hn::Add(sum, small));
#pragma GCC unroll 4
      for (int b = 0; b < n; ++b) c[a * line + b * element] = hn::Mul(c[a * line + b * element], reciprocal);
      if (trail != nullptr) hn::StoreU(reciprocal, D(), trail + (count + a) * kWidth);
    }
    if (trail == nullptr) return;
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) hn::StoreU(c[i], D(), trail + i * kWidth);
  }

  HWY_INLINE float* step(float* trail, int64_t index) const {
    return trail == nullptr ? nullptr : trail + index * (size() * size() + size()) * kWidth;
  }

  HWY_INLINE void run(float* matrix, float* trail) {
    softmax_rows(matrix);
    normalise(true, trail);
    for (int64_t i = 1; i < iters; ++i) {
      normalise(false, step(trail, 2 * i - 1));
      normalise(true, step(trail, 2 * i));
    }
  }

  // c holds the gradient: g = (g - sum over the line of g * y) / s, y being what the step gave.
  HWY_INLINE void undo(bool across, const float* trail) {
    const int n = size(), count = n * n, line = across ? 1 : n, element = across ? n : 1;
#pragma GCC unroll 4
    for (int a = 0; a < n; ++a) {
      const float* y = trail + a * line * kWidth;
      V sum = hn::Mul(c[a * line], hn::LoadU(D(), y));
#pragma GCC unroll 4
      for (int b = 1; b < n; ++b) {
        sum = hn::MulAdd(c[a * line + b * element], hn::LoadU(D(), y + b * element * kWidth), sum);
      }
      const V reciprocal = hn::LoadU(D(), trail + (count + a) * kWidth);
#pragma GCC unroll 4
      for (int b = 0; b < n; ++b) {
        c[a * line + b * element] = hn::Mul(hn::Sub(c[a * line + b * element], sum), reciprocal);
      }
    }
  }

  // gradient: dcomb, replaced by dlogits. softmax and trail: what run() left.
  HWY_INLINE void run_back(const float* softmax, const float* trail, float* gradient) {
    const int count = size() * size(), stride = (count + size()) * kWidth;
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i) c[i] = hn::Load(D(), gradient + i * kWidth);
    for (int64_t i = iters - 1; i > 0; --i) {
      undo(true, trail + 2 * i * stride);
      undo(false, trail + (2 * i - 1) * stride);
    }
    undo(true, trail);
    store(gradient);
    for (int j = 0; j < size(); ++j) {
      const float* p = softmax + j * size() * kWidth;
      float* g = gradient + j * size() * kWidth;
      V sum = hn::Zero(D());
      for (int k = 0; k < size(); ++k) {
        sum = hn::MulAdd(hn::Load(D(), g + k * kWidth), hn::Load(D(), p + k * kWidth), sum);
      }
      for (int k = 0; k < size(); ++k) {
        const V v = hn::Mul(hn::Load(D(), p + k * kWidth), hn::Sub(hn::Load(D(), g + k * kWidth), sum));
        hn::Store(v, D(), g + k * kWidth);
      }
    }
  }
};

// Lanes from tokens: to[x] = values[.., x] of `count` tokens that lie `stride` apart, zeros in the lanes behind.
HWY_INLINE void to_lanes(const float* values, int64_t stride, int64_t count, int64_t width, float* to) {
  for (int64_t x = 0; x < width; ++x) {
    for (int64_t t = 0; t < kWidth; ++t) to[x * kWidth + t] = t < count ? values[t * stride + x] : 0.0f;
  }
}

HWY_INLINE void from_lanes(const float* lanes, int64_t stride, int64_t count, int64_t width, float* values) {
  for (int64_t x = 0; x < width; ++x) {
    for (int64_t t = 0; t < count; ++t) values[t * stride + x] = lanes[x * kWidth + t];
  }
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
