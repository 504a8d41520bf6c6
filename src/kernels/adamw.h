// One AdamW update of one tensor, in place (decoupled weight decay; Loshchilov and Hutter 2019, arXiv 1711.05101), and
// the sum of squares for a global gradient norm.
//
//   g = clip * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   master = (1 - lr * decay) master - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
//
// Elementwise, each operation rounded on its own: equal on any CPU and any number of threads.
#pragma once
#include "tensor/tensor.h"

namespace kernels {

using tensor::Tensor;

struct AdamwStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0;
  double clip = 1;   // factor on the gradient
  int64_t step = 1;  // t, from 1 on
};

// All of one floating dtype, one shape and one device. master, m and v: contiguous. The kernel takes f32 on the CPU.
void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, const AdamwStep& step);

// Sum of squares in f64 of any floating tensor (empty: 0; NaN or infinity when a value is). Blocks of 4096 elements,
// each in 8 lanes, blocks in ascending order: it does not depend on the number of threads.
double sum_of_squares(const Tensor& values);

}  // namespace kernels
