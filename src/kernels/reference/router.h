// The definitions of kernels/router.h by tensor operations: any device, f32 and f64, weights differentiable.
#pragma once
#include "kernels/router.h"

namespace kernels::reference {

Tensor best_experts(const Tensor& logits_TE, const Tensor& bias_E, const RouterOptions& options);
Tensor expert_weights(const Tensor& logits_TE, const Tensor& expert_TA, const RouterOptions& options);
Tensor hashed_experts(const Tensor& tid2eid_VA, const Tensor& ids_T);

}  // namespace kernels::reference
