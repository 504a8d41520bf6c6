// What happens to queries, keys and attention's output around the products: norms, rotary embedding of the last
// rope_dim dims (interleaved pairs, row position_T[t] of the table; spec 4.2 to 4.4, 4.8), and the roundings between
// (decisions 16). All are one pass over the data, differentiable, straight-through at roundings.
//
// Letters: T tokens, H heads, K head_dim, R rope_dim / 2.
#pragma once
#include "kernels/layout.h"
#include "kernels/rounding.h"

namespace kernels {

using tensor::Tensor;

// Queries: per head x / rms(x), rounded, turned, rounded. x [T, H * K] -> [T, H, K].
Tensor query_heads(const Tensor& x, int64_t num_heads, double eps, const Layout& layout, const RopeTable& table,
                   Rounding rounding);

struct KvOptions {
  double eps = 1e-6;
  Rounding rounding = Rounding::none;
  bool simulate = false;  // then the dims before the rope dims go on the e4m3 grid in groups of 64 (spec 4.3)
};
// Keys: rms_norm with weight, rounded, turned, rounded, simulated. x [T, K] -> [T, K].
Tensor kv_rows(const Tensor& x, const Tensor& norm_weight, const KvOptions& options, const Layout& layout,
               const RopeTable& table);

// Turned (inverse: the other way), then rounded. x [T, .., K].
Tensor rotate(const Tensor& x, const Layout& layout, const RopeTable& table, bool inverse, Rounding rounding);

}  // namespace kernels
