// Pooling of rows into compressed entries over raw f32, forward and backward. Torch-free, on the threads of
// base/parallel.h. Mathematics and order of the sums: kernels/compressor.h.
//
// Letters: T tokens, K entry dim, C channels (K, or 2K with overlap), B new entries, P rows of state per sequence.
#pragma once
#include <cstdint>
#include <span>

namespace kernels::cpu {

// The tokens of one sequence in this pass.
struct PoolSpan {
  int64_t start = 0, count = 0;  // positions start .. start + count - 1
  int64_t first = 0;             // row of its first token in the pass
  int64_t state_row = 0;         // position p < start lies in state row state_row + p mod P
  int64_t first_new = 0;         // its first new entry
};

struct PoolInput {
  const float *kv_TC = nullptr, *score_TC = nullptr;  // of this pass; score without ape
  const float* ape = nullptr;                         // [ratio, C]
  float *state_kv = nullptr, *state_score = nullptr;  // [.., C], score with ape; nullptr without a cache
  std::span<const PoolSpan> spans;
  int64_t ratio = 0, dim = 0;
  bool overlap = false;

  int64_t channels() const { return overlap ? 2 * dim : dim; }
  int64_t rows() const { return overlap ? 2 * ratio : ratio; }
  int64_t first_entry(const PoolSpan& span) const { return span.start / ratio; }
  int64_t end_entry(const PoolSpan& span) const { return (span.start + span.count) / ratio; }
};

// out [B, K], to bf16 if `round_bf16`; before any norm. Reads the state; rows before the sequence count as absent.
void pool_rows(const PoolInput& input, bool round_bf16, float* out_BK);

// The last P tokens of each span replace the rows of its state. After pool_rows.
void keep_rows(const PoolInput& input);

// Without state: every span starts at 0. dkv and dscore [T, C] and dape [ratio, C] are written, whatever they held.
struct PoolGradients {
  float *dkv_TC = nullptr, *dscore_TC = nullptr, *dape = nullptr;
  int64_t num_tokens = 0;
};
void pool_rows_backward(const PoolInput& input, const float* dout_BK, const PoolGradients& gradients);

}  // namespace kernels::cpu
