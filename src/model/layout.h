// Where each token of a forward pass stands: which sequence, at which position, which keys it may see. Built on the
// host once per pass from plain integers, then moved to the device; the forward pass itself reads no host value and
// asks the device nothing.
//
// A pass is a list of spans. Training: one span per document, start 0, no cache. Generation: one span per sequence, its
// next prompt chunk or its one new token. Tokens of all spans stand one after the other ([T]); nothing is padded
// outside attention.
#pragma once
#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/rope.h"
#include "tensor/tensor.h"

namespace model {

struct Span {
  int64_t start = 0;  // position of its first token; > 0 only with a cache that holds the tokens before
  int64_t count = 0;  // tokens in this pass, >= 1
  int64_t slot = 0;   // slot of the cache; ignored without one
};

// What the compressors of one ratio do in this pass.
// Letters: Q query blocks, N largest count of entries visible in a block, B new entries, W ratio, P rows pooled (W, or
// 2W with overlap)
struct CompressLayout {
  int64_t ratio = 0;
  bool overlap = false;
  int64_t num_new = 0;          // B
  int64_t max_entries = 0;      // N
  tensor::Tensor ape_row_T;     // [T] position mod W
  tensor::Tensor rows_BP;       // [B, P] rows of (state rows of the spans, new rows, one sentinel row)
  tensor::Tensor position_B;    // [B] f32 position of the first token of each new entry
  Rotation rope_B;              // of position_B
  tensor::Tensor entry_slot_B;  // [B] slot * capacity + index: where a new entry is stored (with a cache)
  tensor::Tensor entries_QN;  // [Q, N] rows of the pool of entries (cache or new ones) that a query block may see; the
                              // others point to the sequence's own first row, so that no foreign value is ever read
  tensor::Tensor reset_entries;  // rows of the cache's entries to clear: the first of each sequence that starts here
  tensor::Tensor visible_QLN;    // [Q, L, N] bool
  tensor::Tensor state_from, state_to;  // new rows that the state keeps, and where (with a cache)
};

struct Layout {
  std::vector<Span> spans;
  int64_t num_tokens = 0;  // T
  int64_t block_len = 1;   // L queries per block
  int64_t num_blocks = 0;  // Q
  bool cached = false;
  tensor::Tensor position_T;                // [T] f32
  Rotation rope_window_T, rope_compress_T;  // of position_T, for layers without and with a compressor
  tensor::Tensor slot_S;                    // [S] slots of the spans
  tensor::Tensor block_token_QL;            // [Q, L] token of each query; past the end of a span: its last token
  tensor::Tensor token_block_T;             // [T] row of each token in [Q * L]
  tensor::Tensor window_QX;           // [Q, X] rows of (ring rows of the spans, new rows), X = L + sliding_window - 1
  tensor::Tensor in_window_QLX;       // [Q, L, X] bool
  tensor::Tensor ring_from, ring_to;  // new rows that the window ring keeps, and where (with a cache)
  CompressLayout csa, hca;            // ratio 0 if the model has no such layer

  // capacity: tokens a slot of the cache can hold; 0 without a cache. Errors: invalid_argument for an empty or overlong
  // span.
  static Layout build(const Config& config, std::vector<Span> spans, int64_t capacity, tensor::Device device);
};

}  // namespace model
