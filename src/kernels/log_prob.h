// Log-probs of chosen tokens and the entropy of their distributions, from the final hidden rows and the head, by chunks
// of rows: the logits of a batch are never all in memory, neither forward nor backward (which computes each chunk's
// logits again). Engine and actor both take log-probs from here, so the same row gives the same bits.
//
//   y = (hidden W^T) / temperature; ids without a token: y = -inf
//   log_prob = (y[target] - max y) - log(sum exp(y - max y)),  entropy = -sum p log p  (0 log 0 = 0)
//
// Sums over the vocabulary: f32, in blocks of 1024 with 16 lanes each; lanes, then blocks, in ascending order.
//
// Letters: N rows, D hidden_size, V vocab. Source: decisions 6, 7, 8.
#pragma once
#include <vector>

#include "kernels/matrix.h"

namespace kernels {

// bool [V], true for ids without a token, which have logit -inf (decisions 8); undefined when there are none. Ids
// outside the vocabulary are left out.
Tensor absent_mask(const std::vector<int32_t>& ids, int64_t vocab, tensor::Device device);

// Sets the logits [R, V] of absent ids to -inf. absent_V on the CPU, or undefined: nothing happens.
void mark_absent(const Tensor& absent_V, float* logits, int64_t rows, int64_t vocab);

struct LogProbOptions {
  double temperature = 1;  // of the rollout; > 0 (greedy answers are scored at 1)
  Tensor absent_V;         // bool [V], true: the id has no token; undefined: all have one
  int64_t rows_per_chunk = 256;
};

struct LogProbs {
  Tensor log_prob_N;  // -inf for a target without a token
  Tensor entropy_N;   // nats, of the distribution at that temperature
};

// hidden [N, D], target int64 [N] in [0, V). Differentiable in hidden and head, through both results. The gradient of
// the head is summed chunk by chunk.
LogProbs chunked_log_probs(const Tensor& hidden_ND, const Matrix& head, const Tensor& target_N,
                           const LogProbOptions& options);

}  // namespace kernels
