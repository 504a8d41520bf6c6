// What the tests of kernels have in common: inputs, thread counts, distances, and gradients by finite differences.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "base/parallel.h"
#include "tensor/tensor.h"

namespace test {

using tensor::Tensor;
using Tensors = std::vector<Tensor>;

inline constexpr double kUnit = 0x1p-24;  // one rounding of f32, relative

inline Tensor normal(const std::vector<int64_t>& shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed)).to(dtype);
}

template <class Body>
void for_thread_counts(const Body& body) {
  const int before = base::num_threads();
  for (const int count : {1, 2, 3}) {
    base::set_num_threads(count);
    SCOPED_TRACE(count);
    body();
  }
  base::set_num_threads(before);
}

// The largest |a - b| / bound; 0 / 0 counts as 0.
inline double worst(const Tensor& a, const Tensor& b, const Tensor& bound) {
  if (a.numel() == 0) return 0;
  const Tensor apart = (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs();
  return at::where(apart == 0, 0.0, apart / bound.detach().to(at::kDouble)).max().item<double>();
}
inline double worst(const Tensor& a, const Tensor& b, double bound) { return worst(a, b, at::full({1}, bound)); }

using Function = std::function<Tensors(const Tensors&)>;

// sum over all results of result * fixed weights: one number that depends on every element.
inline Tensor weighted_sum(const Tensors& results) {
  Tensor sum = at::zeros({}, results[0].options());
  uint64_t seed = 900;
  for (const Tensor& result : results) {
    const Tensor weights = normal(result.sizes().vec(), ++seed).to(result.options());
    sum = sum + (result * weights).sum();
  }
  return sum;
}

// The gradients of weighted_sum(function(inputs)), the inputs in this dtype.
inline Tensors gradients(const Function& function, const Tensors& inputs, at::ScalarType dtype) {
  Tensors leaves, result;
  for (const Tensor& input : inputs) leaves.push_back(input.detach().to(dtype).clone().requires_grad_());
  weighted_sum(function(leaves)).backward();
  for (const Tensor& leaf : leaves) result.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
  return result;
}

// In f64, along random directions of each input: central differences with step h have an error of h^2 times the third
// derivative, and 1e-16 / h of rounding; with h = 1e-5 both stay below 1e-8 of the values at hand.
inline void expect_gradients_match_differences(const Function& function, const Tensors& inputs) {
  const Tensors slopes = gradients(function, inputs, at::kDouble);
  Tensors points;
  for (const Tensor& input : inputs) points.push_back(input.detach().to(at::kDouble));
  const double h = 1e-5;
  for (size_t i = 0; i < points.size(); ++i) {
    const Tensor middle = points[i];
    const Tensor direction = normal(middle.sizes().vec(), 77 + i, at::kDouble);
    const auto value_at = [&](double step) {
      points[i] = middle + direction * step;
      return weighted_sum(function(points)).item<double>();
    };
    const double difference = (value_at(h) - value_at(-h)) / (2 * h);
    points[i] = middle;
    const double slope = (slopes[i] * direction).sum().item<double>();
    EXPECT_NEAR(slope, difference, 1e-7 * (1 + std::abs(difference))) << "input " << i;
  }
}

}  // namespace test
