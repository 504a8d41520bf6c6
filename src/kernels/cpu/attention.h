// Attention over raw f32, forward and backward. Torch-free, on the threads of base/parallel.h. Mathematics and order of
// the sums: kernels/attention.h. Keys are read where they lie: rows of this pass, of a ring, of compressed entries.
//
// Letters: T tokens, H heads, K head_dim, A choices per token, S spans, B entries.
#pragma once
#include <cstdint>
#include <span>

namespace kernels::cpu {

// The tokens of one sequence in this pass.
struct AttentionSpan {
  int64_t start = 0, count = 0;  // positions start .. start + count - 1
  int64_t first = 0;             // row of its first token in the pass
  int64_t ring_row = 0;          // position p < start lies in ring row ring_row + p mod window
  int64_t entry_row = 0;         // its entry w lies in row entry_row + w
};

struct AttentionInput {
  const float* query_THK = nullptr;
  const float* kv_TK = nullptr;
  const float* ring = nullptr;         // [.., K]; not read when every span starts at 0
  const float* entries = nullptr;      // [.., K]
  const int32_t* chosen_TA = nullptr;  // ascending, -1 = none; nullptr: every visible entry
  const float* sink_H = nullptr;
  std::span<const AttentionSpan> spans;
  const int32_t* span_T = nullptr;
  int64_t num_tokens = 0, num_heads = 0, head_dim = 0;
  int64_t window = 0;
  int64_t ratio = 0;       // a token at position p sees entries w < (p + 1) / ratio; 0: there are none
  int64_t num_chosen = 0;  // A
  float scale = 1;
};

// What the backward pass needs of the forward one, [T, H]: the row maximum and the denominator.
struct AttentionStatistics {
  float *max = nullptr, *total = nullptr;
};

// out [T, H, K]. statistics: may be null.
void attend(const AttentionInput& input, bool round_bf16, float* out_THK, const AttentionStatistics& statistics);

struct AttentionGradients {
  float *dquery_THK = nullptr, *dkv_TK = nullptr, *dentries_BK = nullptr, *dsink_H = nullptr;
  int64_t num_entries = 0;  // B
};

// Every span starts at 0. All gradients are written, whatever they held.
void attend_backward(const AttentionInput& input, const AttentionStatistics& statistics, const float* dout_THK,
                     const AttentionGradients& gradients);

// The last `window` tokens of each span replace the rows of its ring.
void keep_window(const float* kv_TK, std::span<const AttentionSpan> spans, int64_t window, int64_t head_dim,
                 float* ring);

}  // namespace kernels::cpu
