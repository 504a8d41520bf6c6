// The chunks of kernels/log_prob.h on the CPU. Torch-free. The threads of base/parallel.h.
//
// Letters: N rows, D inputs (hidden size), V vocab, C rows of a chunk.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/cpu/matmul.h"

namespace kernels::cpu {

struct LogProbRows {
  const float* hidden = nullptr;  // [N, D], dense
  int64_t num_rows = 0;
  PackedMatrix head;                 // n = V, k = D
  const int64_t* targets = nullptr;  // [N], in [0, V)
  std::span<const int32_t> absent;   // ascending ids without a token
  float temperature = 1;
  int64_t rows_per_chunk = 1;
};

// Of one row, what the gradient needs again. A row that is not finite has NaN in all of them.
struct RowSums {
  float max = 0, log_sum = 0, entropy = 0;
};

// scratch: [min(rows_per_chunk, N), V]. A row that is not finite gets NaN.
void log_probs(const LogProbRows& rows, float* log_prob, RowSums* sums, float* scratch);

// From d(loss) / d(log_prob) and d(loss) / d(entropy), with p the probabilities and H the entropy of a row:
//   d(loss) / d(z) = (g_log_prob * (onehot(target) - p) - g_entropy * p * (log p + H)) / temperature
// 0 for ids without a token and where p is 0; NaN for a row that is not finite.
struct LogProbGradient {
  const float *log_prob = nullptr, *entropy = nullptr;  // [N]
  const RowSums* sums = nullptr;                        // of log_probs()
  PackedMatrix head_transposed;                         // n = D, k = V
  float* hidden = nullptr;                              // out [N, D], dense, or nullptr: not wanted
  float* head = nullptr;                                // out [V, D], dense, likewise
};
void log_prob_gradient(const LogProbRows& rows, const LogProbGradient& gradient, float* scratch);

}  // namespace kernels::cpu
