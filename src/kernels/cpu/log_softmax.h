// One row of logits, made ready for log-probs and for sampling. Torch-free. The same arithmetic for the sampler, for
// re-scoring and for training (kernels/log_prob.h).
//
// Sums over the vocabulary: in blocks of 1024 ids with 16 lanes each (id i of a block in lane i % 16); lanes, then
// blocks, in ascending order, on every instruction set and any number of threads.
#pragma once
#include <cstdint>

namespace kernels::cpu {

constexpr int64_t kVocabBlock = 1024;

struct RowStatistics {
  float max = 0;        // of y = z / T
  float log_sum = 0;    // log(sum exp(y - max)), f32
  float entropy = 0;    // nats; log_sum - sum(w * (y - max)) / sum(w) with w = exp(y - max), w * (y - max) = 0 at w = 0
  int64_t best = 0;     // lowest id of the highest z
  bool finite = false;  // false: a NaN or +inf, all -inf, or an overflow of the highest z / T; the rest is not set then
};

// logits [V], V >= 1; -inf marks ids without a token. shifted [V]: y - max; it may be `logits` itself. weights [V]: its
// exponential, or nullptr. May be called by several threads; a long row uses the threads of base/parallel.h.
RowStatistics log_softmax_row(const float* logits, int64_t vocab, float temperature, float* shifted, float* weights);

// The log-prob of an id of a finite row: the one expression for it.
inline float log_prob(const RowStatistics& row, const float* shifted, int64_t id) { return shifted[id] - row.log_sum; }

// The masses that inverse-CDF sampling walks: of each block, the sum in f64 of its weights >= least. sums
// [ceil(V / 1024)].
void block_masses(const float* weights, int64_t vocab, float least, double* sums);

}  // namespace kernels::cpu
