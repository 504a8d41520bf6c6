// The definition of kernels/log_prob.h by plain tensor operations: any device, f32 and f64.
#pragma once
#include "kernels/log_prob.h"

namespace kernels::reference {

// hidden_ND, head_VD: one dtype and device. All rows at once, differentiable by autograd; rows_per_chunk is not read.
LogProbs log_probs(const Tensor& hidden_ND, const Tensor& head_VD, const Tensor& target_N,
                   const LogProbOptions& options);

// The same by chunks of rows, as one node of the graph, whose backward runs autograd on one chunk after the other.
LogProbs chunked_log_probs(const Tensor& hidden_ND, const Tensor& head_VD, const Tensor& target_N,
                           const LogProbOptions& options);

}  // namespace kernels::reference
