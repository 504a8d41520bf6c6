// Log-probs of chosen tokens and the entropy of their distributions, from the final hidden rows and the head, by chunks
// of rows: the logits of a batch are never all in memory, neither forward nor backward (which computes each chunk's
// logits again).
//
//   z = hidden W^T / temperature,  ids >= valid_vocab: z = -inf
//   log_prob = z[target] - logsumexp(z),  entropy = -sum p log p  (0 log 0 = 0)
//
// All arithmetic is f32 (f64 for f64 input). Memory beyond the results: about 3 * rows_per_chunk * V values, and in
// backward one gradient of the head. Order of sums: one chunk after the other, so the gradient of the head does not
// depend on threads more than the matrix product itself does.
//
// Letters: N rows, D hidden_size, V vocab. Source: decisions 7, 8.
#pragma once
#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;

struct LogProbOptions {
  double temperature = 1;   // of the rollout; > 0 (greedy answers are scored at 1)
  int64_t valid_vocab = 0;  // ids from here on have no token; 0: all V have one
  int64_t rows_per_chunk = 256;
};

struct LogProbs {
  Tensor log_prob_N;  // -inf for a target without a token
  Tensor entropy_N;   // nats, of the distribution at that temperature
};

// hidden_ND, head_VD: same dtype and device; target_N: int64 in [0, V). Differentiable in hidden and head, through both
// results.
LogProbs chunked_log_probs(const Tensor& hidden_ND, const Tensor& head_VD, const Tensor& target_N,
                           const LogProbOptions& options);

}  // namespace actor
