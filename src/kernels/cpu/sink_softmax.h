// Softmax over the keys of one query with a sink that takes weight but has no value (spec 4.7), for several heads side
// by side. Torch-free, on the caller's thread. Sums run over ascending keys, the sink last. A NaN score makes its head
// NaN.
//
// Letters: N keys, H heads.
#pragma once
#include <cstdint>

namespace kernels::cpu {

constexpr int64_t kMaxHeads = 16;  // of one call

struct HeadScores {
  float* score = nullptr;  // row n at n * stride; readable and writable up to a multiple of 8 heads
  int64_t stride = 0, num_keys = 0, num_heads = 0;
  const float* sink_H = nullptr;
};

// max[h] = max(sink, scores); score[n] = exp(score[n] - max); total[h] = their sum, and exp(sink - max).
void exponentials(const HeadScores& scores, float* max_H, float* total_H);

// out[h, :] /= total[h], then to bf16 if `round_bf16`.
void divide_heads(const float* total_H, int64_t num_heads, int64_t dim, bool round_bf16, float* out_HK);

// Backward. In: scores; dweight[n, h] = <dO_h, key_n>; max and total as exponentials() gave them. Out, in place:
//   score  = P = exp(score - max) / total
//   dweight = dS * scale = P * (dweight - delta) * scale,   delta = sum over n of P * dweight (= <dO, o>)
//   dsink  = -exp(sink - max) / total * delta
struct HeadGradients {
  HeadScores scores;
  float* dweight = nullptr;  // as scores.score
  const float *max_H = nullptr, *total_H = nullptr;
  float scale = 1;
  float* dsink_H = nullptr;
};
void softmax_gradients(const HeadGradients& gradients);

}  // namespace kernels::cpu
