// The definitions of kernels/experts.h by tensor operations: any device, f32 and f64, differentiable. Nothing is read
// back to the host. The order of the sums inside products is the device's.
//
// Letters: as kernels/experts.h; P = T * A pairs of a token and one of its experts.
#pragma once
#include "kernels/experts.h"

namespace kernels::reference {

struct ExpertValues {
  Tensor w1, w2, w3;  // [E, F, D], [E, D, F], [E, F, D]; of the shared expert without E
};

Tensor routed_experts(const Tensor& x, const Tensor& expert_TA, const Tensor& weight_TA, const Tensor& shared,
                      const ExpertValues& weights, const ExpertOptions& options);
Tensor shared_expert(const Tensor& x, const ExpertValues& weights, const ExpertOptions& options);

// y[p] = weight[e(p)] x[p] for rows sorted by expert: expert [P] ascending -> [P, N]. Experts without rows are fine.
Tensor expert_products(const Tensor& x_PK, const Tensor& weight_ENK, const Tensor& expert_P);

}  // namespace kernels::reference
