// Attention over a sliding window, compressed entries and a sink: one shared KV head, k = v (spec 4.7, 4.9, decisions
// 5, 16).
//
//   s_j = scale * <q, k_j>;  m = max(sink, s);  o = sum_j exp(s_j - m) k_j / (exp(sink - m) + sum_j exp(s_j - m))
//
// Keys in this order, in every execution (prefill, chunks, decode, training): window keys by position, then compressed
// entries by index, the sink last in the denominator; the division at the end; then one rounding. <q, k> is one chain
// of fused multiply-adds over K. Softmax weights stay f32. A token's result depends on its own sequence only, and not
// on how the pass was cut or on threads.
//
// Gradient (without a cache only): dS = P (dP - <dO, o>), <dO, o> taken as the sum of P dP over the keys in order; a
// key collects both its roles, queries in order, in a query heads in order. The sink's gradient: tokens in order.
// Rounding is straight-through.
//
// Letters: T tokens, H heads, K head_dim, A index_topk, S slots, X sliding_window, B entries.
#pragma once
#include "kernels/layout.h"
#include "kernels/rounding.h"

namespace kernels {

using tensor::Tensor;

struct AttentionKeys {
  Tensor kv_TK;       // this pass's window keys
  Tensor ring_SXK;    // with a cache: earlier window keys, row = position mod X; read here, written by keep_window
  Tensor entries_BK;  // compressed entries: of this pass, or all rows of the cache ([S, N, K] will do); undefined:
                      // none are visible
  const EntryLayout* entry_layout = nullptr;  // nullptr: a layer without compressed entries
  Tensor chosen_TA;  // int32, ascending entry index, -1 = none; undefined: every visible entry. An index that its
                     // token may not see is not read
};

// query [T, H, K], sink [H] -> [T, H, K], rounded. Differentiable in query, kv, entries and sink.
Tensor attend(const Tensor& query_THK, const AttentionKeys& keys, const Tensor& sink_H, double scale,
              const Layout& layout, Rounding rounding);

// The window ring takes over the last X tokens of each span. After attend.
void keep_window(const Tensor& kv_TK, const Layout& layout, Tensor& ring_SXK);

}  // namespace kernels
