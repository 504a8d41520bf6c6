// Where each token of a forward pass stands: which sequence, at which position. Plain integers on the host; the CPU
// kernels read them as they are, the references build index tensors from them. No kernel asks the device for a value.
//
// A pass is a list of spans. Training: one span per document, start 0, no cache. Generation: one span per sequence, its
// next prompt chunk or its one new token. The tokens of all spans stand one after the other ([T]); nothing is padded.
#pragma once
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace kernels {

struct Span {
  int64_t start = 0;  // position of its first token; > 0 only with a cache that holds the tokens before
  int64_t count = 0;  // tokens in this pass, >= 1
  int64_t slot = 0;   // slot of the cache; ignored without one
  int64_t first = 0;  // row of its first token in the pass
};

// Compressed entries of one ratio: entry w of a sequence pools the tokens up to position (w + 1) * ratio - 1, and a
// token at position p may see the entries w < (p + 1) / ratio.
struct EntryLayout {
  int64_t ratio = 0;     // 0: the model has no such layer
  bool overlap = false;  // an entry pools 2 * ratio tokens (ratio-4 layers)
  int64_t capacity = 0;  // with a cache: entries per slot; entry w lies in row slot * capacity + w of the cache
  int64_t num_new = 0;   // entries that this pass completes, over all spans, in order
  std::vector<int64_t> first_new_S;  // per span: its first new entry; without a cache entry w lies in row first + w

  int64_t rows() const { return overlap ? 2 * ratio : ratio; }  // that one entry pools, and that state keeps per slot
  int64_t first_entry(const Span& span) const { return span.start / ratio; }
  int64_t end_entry(const Span& span) const { return (span.start + span.count) / ratio; }
};

struct Layout {
  std::vector<Span> spans;
  int64_t num_tokens = 0;  // T
  bool cached = false;
  int64_t window = 0;               // sliding_window: a token at p sees the positions p - window + 1 .. p
  std::vector<int32_t> position_T;  // of each token
  std::vector<int32_t> span_T;      // index of its span
  EntryLayout csa, hca;
};

// cos and sin of position * frequency: f32 [P, rope_dim / 2], a row per position, P above every position in use.
struct RopeTable {
  tensor::Tensor cos_PR, sin_PR;
};

}  // namespace kernels
