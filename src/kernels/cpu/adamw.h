// One AdamW update in one sweep over memory, and sums of squares. Torch-free. The threads of base/parallel.h.
#pragma once
#include <cstdint>

namespace kernels::cpu {

// What a step multiplies with, in f32; kernels/adamw.h has the formula.
struct AdamwFactors {
  float clip = 1;
  float beta1 = 0, rest1 = 1;  // rest: 1 - beta
  float beta2 = 0, rest2 = 1;
  float root = 1;  // 1 / sqrt(1 - beta2^t)
  float eps = 0;
  float keep = 1;  // 1 - lr * decay
  float rate = 0;  // lr / (1 - beta1^t)
};

// Per element, each operation rounded on its own (nothing fused), so equal on every instruction set and any number of
// threads:
//   g = clip * grad;  m = beta1 * m + rest1 * g;  v = beta2 * v + (rest2 * g) * g
//   master = keep * master - (rate * m) / (sqrt(v) * root + eps)
void adamw(float* master, float* m, float* v, const float* grad, int64_t count, const AdamwFactors& factors);

// Squares are exact in f64. Blocks of 4096 elements; element i of a block in lane i % 8; lanes, then blocks, in
// ascending order: equal on every instruction set and any number of threads.
double sum_of_squares(const float* values, int64_t count);

}  // namespace kernels::cpu
