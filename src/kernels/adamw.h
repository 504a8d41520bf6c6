// One AdamW update of one tensor, in place (decoupled weight decay; Loshchilov and Hutter 2019), and the sum of squares
// for a global gradient norm.
//
//   g = clip * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   master *= 1 - lr * decay;  master -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//
// f32, elementwise: equal on any number of threads.
#pragma once
#include "tensor/tensor.h"

namespace kernels {

using tensor::Tensor;

struct AdamwStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0;
  double clip = 1;   // factor on the gradient
  int64_t step = 1;  // t, from 1 on
};

// All f32, contiguous, of one shape.
void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, const AdamwStep& step);

// Sum of squares in f64: blocks of 4096 elements, each in 8 lanes, blocks in ascending order.
double sum_of_squares(const Tensor& values);

}  // namespace kernels
