// SwiGLU experts, routed and shared (spec 5.2 to 5.4, decisions 5, 22).
//
//   g = round(w1 x), u = round(w3 x);  h = round(weight * (silu(min(g, limit)) * clamp(u, -limit, limit)))
//   y_e = round(w2 simulate(h));  out = round(sum over chosen experts, ascending id, of y_e, then the shared expert)
//
// Rows are grouped by expert, each expert's products run over its rows; the sum is per token in the order above, f32.
// Gradients: clamps pass none outside their range (at the limit itself they pass); rounding and simulation are
// straight-through; every gradient sum has one fixed order: dW over ascending tokens; dx over a token's experts of dg
// W1, then of du W3, both ascending; d(weight) as kernels/cpu/experts.h. Kept for backward: g and u.
//
// Letters: T tokens, D hidden_size, E experts, A experts per token, F intermediate size.
#pragma once
#include "kernels/matrix.h"
#include "kernels/rounding.h"

namespace kernels {

struct ExpertOptions {
  double limit = 10;  // <= 0: no clamp
  Rounding rounding = Rounding::none;
  bool simulate = false;  // h goes through simulate_groups(128, e4m3) before w2
};

struct ExpertWeights {
  const Matrix& w1;  // [E, F, D], or [F, D] of the shared expert
  const Matrix& w2;  // [E, D, F]
  const Matrix& w3;  // [E, F, D]
};

// x [T, D] (through simulate_groups where weights are quantised), expert int32 [T, A] ascending, weight f32 [T, A],
// shared [T, D] (added last) -> [T, D] rounded. Differentiable in x, weight, shared and the matrices.
Tensor routed_experts(const Tensor& x, const Tensor& expert_TA, const Tensor& weight_TA, const Tensor& shared,
                      const ExpertWeights& weights, const ExpertOptions& options);

// The shared expert: [T, D] -> [T, D], rounded. Differentiable.
Tensor shared_expert(const Tensor& x, const ExpertWeights& weights, const ExpertOptions& options);

}  // namespace kernels
