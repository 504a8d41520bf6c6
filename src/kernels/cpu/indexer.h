// The lightning indexer's choice over raw f32. Torch-free, on the threads of base/parallel.h. Mathematics and order of
// the sums: kernels/indexer.h.
//
// Letters: T tokens, H index heads, I index_head_dim, B entries, A index_topk.
#pragma once
#include <cstdint>
#include <span>

namespace kernels::cpu {

// The tokens of one sequence in this pass.
struct ChoiceSpan {
  int64_t start = 0, first = 0;  // position and row of its first token
  int64_t entry_row = 0;         // its entry w lies in row entry_row + w of the keys
};

struct ChoiceInput {
  const float *query_THI = nullptr, *weight_TH = nullptr, *keys_BI = nullptr;
  std::span<const ChoiceSpan> spans;
  const int32_t* span_T = nullptr;
  int64_t num_tokens = 0, num_heads = 0, dim = 0;
  int64_t ratio = 0;  // a token at position p sees entries w < (p + 1) / ratio
  int64_t topk = 0;
};

void choose_entries(const ChoiceInput& input, int32_t* chosen_TA);

// The ids of the `topk` best of count scores, ascending, then -1 up to topk. Higher score first, then lower id; NaN
// counts as -infinity, -0 as 0. scores are read only where there are more than topk.
void best_ids(const float* scores, int64_t count, int64_t topk, int32_t* ids);

}  // namespace kernels::cpu
