// Manifold-constrained hyper-connections: how a layer reads from and writes to the M residual streams (spec 3;
// gradients 3.6). f32 throughout, one rounding of each result. Sums: the mix is a matrix product (one chain over K),
// streams in order, post * f first.
//
// Letters: T tokens, M hc_mult, D hidden_size.
#pragma once
#include "kernels/matrix.h"
#include "kernels/rounding.h"

namespace kernels {

struct HcWeights {
  const Matrix& fn;     // [(2 + M) * M, M * D]; of the head [M, M * D]
  const Tensor& base;   // [(2 + M) * M]; of the head [M]
  const Tensor& scale;  // [3]; of the head [1]
};

struct HcOptions {
  int64_t sinkhorn_iters = 20;
  double hc_eps = 1e-6, norm_eps = 1e-6;
  Rounding rounding = Rounding::none;
};

struct HcInput {
  Tensor input_TD;  // what the sub-layer reads, rounded
  Tensor post_TM;   // weight of its output on each stream
  Tensor comb_TMM;  // stream i -> stream j, rows i; near doubly stochastic
};

// Differentiable in streams and all weights.
HcInput hc_pre(const Tensor& streams_TMD, const HcWeights& weights, const HcOptions& options);

// out[j] = post[j] * f + sum over i of comb[i, j] * streams[i]. Differentiable in all four.
Tensor hc_post(const Tensor& output_TD, const Tensor& streams_TMD, const Tensor& post_TM, const Tensor& comb_TMM,
               Rounding rounding);

// One hidden row from the streams, for the head: [T, M, D] -> [T, D].
Tensor hc_head(const Tensor& streams_TMD, const HcWeights& weights, const HcOptions& options);

// softmax over the last dim, then `iters` column and iters - 1 row normalisations, each sum with eps added (spec 3.2).
// For tests; hc_pre has it inside. Differentiable.
Tensor sinkhorn(const Tensor& logits_TMM, int64_t iters, double eps);

}  // namespace kernels
