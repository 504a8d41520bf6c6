// Log-probs of chosen tokens and entropies from rows of logits; probabilities are never stored.
//
//   y = logit / temperature (-inf for ids without a token), log_prob = (y[target] - max y) - log(sum exp(y - max y)),
//   entropy = log(sum) - sum(w * (y - max)) / sum(w), w = exp(y - max)
//
// Letters   N rows, V vocab (>= 1)
// Numerics  sums as kernels/cpu/log_softmax.h: blocks of 1024 ids with 16 lanes each; lanes, then blocks, ascending.
//           Equal to the CPU kernel to the bit but for log(sum): here it is rounded from f64, there it is the C
//           library's, at most one unit in the last place away (glibc states 0.818 units for its own).
// Bad rows  a NaN or +inf, -inf alone, or a highest y that overflows: NaN. So is the log-prob of a target outside
//           [0, V); that of a target without a token is -inf.
// Empty     no rows: nothing is done
// Errors    Error{internal}: sizes, temperature; Error{unavailable}: the GPU refuses the kernel
// Gradient  none here; the op differentiates the reference
// Source    decisions 6, 7, 8
#pragma once
#include <cstdint>

#include "kernels/gpu/launch.h"

namespace kernels::gpu {

struct LogitRows {
  const float* logits = nullptr;     // [N, V]
  const bool* absent = nullptr;      // [V] ids without a token, or null: all have one
  const int64_t* targets = nullptr;  // [N]
  int64_t rows = 0, vocab = 0;
  float temperature = 1;  // > 0
};
struct LogProbRows {
  float* log_prob = nullptr;  // [N]
  float* entropy = nullptr;   // [N] nats
};
void log_probs(const LogitRows& rows, const LogProbRows& to, Queue queue);

}  // namespace kernels::gpu
