// Logits of a chunk of rows by the matrix product, then each row on its own.
#include "kernels/cpu/log_prob.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "kernels/cpu/log_softmax.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/log_prob.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#ifndef FURLONG_KERNELS_CPU_LOG_PROB_ROW
#define FURLONG_KERNELS_CPU_LOG_PROB_ROW
namespace kernels::cpu {

struct RowGradient {
  float temperature, max, log_sum, entropy, grad_log_prob, grad_entropy;
};

}  // namespace kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Without the target's own term. One vector of ids.
template <class D>
HWY_INLINE void gradient_of(D d, float* logits, const RowGradient& g) {
  const auto temperature = hn::Set(d, g.temperature);
  const auto shifted = hn::Sub(hn::Div(hn::LoadU(d, logits), temperature), hn::Set(d, g.max));
  // Below -1000 a probability is 0, and 0 times a finite value is the limit of p log p.
  const auto log_p = hn::Max(hn::Sub(shifted, hn::Set(d, g.log_sum)), hn::Set(d, -1000.0f));
  const auto of_entropy = hn::Mul(hn::Set(d, g.grad_entropy), hn::Add(log_p, hn::Set(d, g.entropy)));
  const auto factor = hn::Add(hn::Set(d, g.grad_log_prob), of_entropy);
  hn::StoreU(hn::Neg(hn::Div(hn::Mul(hn::Exp(d, log_p), factor), temperature)), d, logits);
}

// Logits in, their gradient out, in place.
void GradientRow(float* logits, int64_t vocab, const RowGradient& gradient) {
  const hn::ScalableTag<float> d;
  const int64_t width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= vocab; i += width) gradient_of(d, logits + i, gradient);
  if (i == vocab) return;
  HWY_ALIGN float rest[hn::MaxLanes(d)] = {};
  std::copy(logits + i, logits + vocab, rest);
  gradient_of(d, rest, gradient);
  std::copy(rest, rest + (vocab - i), logits + i);
}

}  // namespace kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kernels::cpu {
namespace {

HWY_EXPORT(GradientRow);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kIdsPerRange = 32768;  // about 20 microseconds

struct Chunk {
  int64_t first, count;
};

// body(row of the batch, its logits) for each row of a chunk.
template <class F>
void for_each_row(const LogProbRows& rows, Chunk chunk, float* logits, const F& body) {
  const int64_t vocab = rows.head.n;
  base::parallel_for(chunk.count, std::max<int64_t>(1, kIdsPerRange / vocab), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = logits + r * vocab;
      for (const int32_t id : rows.absent) row[id] = -kInfinity;
      body(chunk.first + r, row);
    }
  });
}

// body(chunk) with the chunk's logits in `logits`.
template <class F>
void for_each_chunk(const LogProbRows& rows, float* logits, const F& body) {
  for (int64_t first = 0; first < rows.num_rows; first += rows.rows_per_chunk) {
    const Chunk chunk{first, std::min(rows.rows_per_chunk, rows.num_rows - first)};
    Product product;
    product.input = rows.hidden + first * rows.head.k;
    product.input_stride = rows.head.k;
    product.output = logits;
    product.output_stride = rows.head.n;
    product.m = chunk.count;
    product.weight = rows.head;
    multiply(product);
    body(chunk);
  }
}

void row_gradient(const LogProbRows& rows, const LogProbGradient& gradient, int64_t n, float* logits) {
  const RowSums& sums = gradient.sums[n];
  const float g = gradient.log_prob[n];
  if (std::isnan(sums.max)) {
    std::fill(logits, logits + rows.head.n, kNotANumber);
    return;
  }
  const int64_t target = rows.targets[n];
  const bool exists = logits[target] > -kInfinity;
  HWY_DYNAMIC_DISPATCH(GradientRow)
  (logits, rows.head.n, {rows.temperature, sums.max, sums.log_sum, sums.entropy, g, gradient.entropy[n]});
  if (exists) logits[target] += g / rows.temperature;
}

}  // namespace

void log_probs(const LogProbRows& rows, float* log_prob_of, RowSums* sums, float* scratch) {
  for_each_chunk(rows, scratch, [&](Chunk chunk) {
    for_each_row(rows, chunk, scratch, [&](int64_t n, float* row) {
      const RowStatistics statistics = log_softmax_row(row, rows.head.n, rows.temperature, row, nullptr);
      if (statistics.finite) {
        log_prob_of[n] = log_prob(statistics, row, rows.targets[n]);
        sums[n] = {statistics.max, statistics.log_sum, statistics.entropy};
      } else {
        log_prob_of[n] = kNotANumber;
        sums[n] = {kNotANumber, kNotANumber, kNotANumber};
      }
    });
  });
}

void log_prob_gradient(const LogProbRows& rows, const LogProbGradient& gradient, float* scratch) {
  const int64_t vocab = rows.head.n, hidden = rows.head.k;
  for_each_chunk(rows, scratch, [&](Chunk chunk) {
    for_each_row(rows, chunk, scratch, [&](int64_t n, float* row) { row_gradient(rows, gradient, n, row); });
    if (gradient.hidden) {
      Product product;
      product.input = scratch;
      product.input_stride = vocab;
      product.output = gradient.hidden + chunk.first * hidden;
      product.output_stride = hidden;
      product.m = chunk.count;
      product.weight = gradient.head_transposed;
      multiply(product);
    }
    if (gradient.head) {
      OuterSum sum;
      sum.dy = scratch;
      sum.dy_stride = vocab;
      sum.x = rows.hidden + chunk.first * hidden;
      sum.x_stride = hidden;
      sum.m = chunk.count;
      sum.n = vocab;
      sum.k = hidden;
      sum.out = gradient.head;
      sum.accumulate = chunk.first > 0;
      add_outer(sum);
    }
  });
}

}  // namespace kernels::cpu
#endif
