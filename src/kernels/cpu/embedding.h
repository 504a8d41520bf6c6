// Rows of a table by id, and the gradient of the table. Over raw f32, torch-free.
#pragma once
#include <cstdint>

namespace kernels::cpu {

struct Embedding {
  const int64_t* ids = nullptr;  // [T], each in [0, V)
  int64_t tokens = 0, vocab = 0, dim = 0;
  int64_t repeat = 1;  // M: each row that many times
};

// table [V, D] -> out [T, M, D]
void embed(const Embedding& embedding, const float* table, float* out);

// dtable [V, D], overwritten: zero, then dout [T, M, D] added by ascending token, inside a token by ascending copy.
void embed_backward(const Embedding& embedding, const float* dout, float* dtable);

}  // namespace kernels::cpu
