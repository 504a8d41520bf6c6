// y = x W^T on packed weights, and its gradients: dx = dy W, dW = dy^T x. f32 activations, f32 sums in the order of
// kernels/cpu/matmul.h, so a row's result does not depend on the rows around it. Inputs of e4m3 and e2m1 matrices have
// gone through simulate_groups (kernels/simulate.h). The gradient of a quantised matrix is that of its values
// (straight-through). dW is one chain over ascending rows.
//
// Letters: T rows, K inputs, N outputs, G groups.
#pragma once
#include "kernels/matrix.h"
#include "kernels/rounding.h"

namespace kernels {

// x [.., K] -> [.., N]. Differentiable in x and in weight.leaf(). Error: CHECK on shapes.
Tensor linear(const Tensor& x, const Matrix& weight, Rounding rounding);

// As linear, x [T, K] -> [T, H, N / H].
Tensor linear_heads(const Tensor& x, const Matrix& weight, int64_t num_heads, Rounding rounding);

// weight is a stack [G, N, K]; x [T, G * K], or of more dims ([T, H, ..]) -> [T, G * N]: group g of a row goes through
// matrix g.
Tensor grouped_linear(const Tensor& x, const Matrix& weight, Rounding rounding);

}  // namespace kernels
