// One row of logits, made ready for log-probs and for sampling. Torch-free. The same arithmetic for the sampler, for
// re-scoring and for training (kernels/log_prob.h).
#pragma once
#include <cstdint>

namespace kernels::cpu {

struct RowStatistics {
  float max = 0;           // of y = z / T
  float log_sum = 0;       // log(sum exp(y - max))
  float entropy = 0;       // nats; log_sum - sum(w * (y - max)) / sum(w) with w = exp(y - max)
  int64_t best = 0;        // lowest id of the highest z
  bool finite = false;     // false: a NaN or +inf, all -inf, or an overflow of z / T; the rest is not set then
};

// logits [V]; -inf marks ids without a token. shifted [V]: y - max. weights [V]: its exponential, or nullptr. May be
// called by several threads.
RowStatistics log_softmax_row(const float* logits, int64_t vocab, float temperature, float* shifted, float* weights);

}  // namespace kernels::cpu
