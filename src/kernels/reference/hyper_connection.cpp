// Gates, Sinkhorn and the mixing of streams, step by step as spec 3 writes them.
#include "kernels/reference/hyper_connection.h"

#include "kernels/reference/simulate.h"

namespace kernels::reference {
namespace {

// (fn . x) / rms(x), the scaling after the product (spec 3.2).
Tensor mixes(const Tensor& streams_TMD, const Tensor& fn, double norm_eps) {
  const Tensor x = streams_TMD.flatten(1);
  return at::linear(x, fn) * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + norm_eps);
}

// sum over streams of pre[t, i] * X[t, i, :], streams in order
Tensor collected(const Tensor& pre_TM, const Tensor& streams_TMD) {
  Tensor sum = streams_TMD.select(1, 0) * pre_TM.narrow(1, 0, 1);
  for (int64_t i = 1; i < pre_TM.size(1); ++i) sum = sum + streams_TMD.select(1, i) * pre_TM.narrow(1, i, 1);
  return sum;
}

}  // namespace

Tensor sinkhorn(const Tensor& logits_TMM, int64_t iters, double eps) {
  constexpr int64_t kSources = 1, kTargets = 2;
  const auto normalised = [&](const Tensor& x, int64_t dim) { return x / (x.sum(dim, /*keepdim=*/true) + eps); };
  Tensor x = normalised(at::softmax(logits_TMM, kTargets) + eps, kSources);
  for (int64_t i = 1; i < iters; ++i) x = normalised(normalised(x, kTargets), kSources);
  return x;
}

HcInput hc_pre(const Tensor& streams_TMD, const HcValues& weights, const HcOptions& options) {
  const int64_t m = streams_TMD.size(1);
  const auto mix = mixes(streams_TMD, weights.fn, options.norm_eps).split_with_sizes({m, m, m * m}, 1);
  const auto base = weights.base.split_with_sizes({m, m, m * m});
  const auto gate = [&](size_t part) { return mix[part] * weights.scale[static_cast<int64_t>(part)] + base[part]; };
  const Tensor pre = at::sigmoid(gate(0)) + options.hc_eps;
  const Tensor post = 2 * at::sigmoid(gate(1));
  const Tensor comb = sinkhorn(gate(2).unflatten(1, {m, m}), options.sinkhorn_iters, options.hc_eps);
  return {rounded(collected(pre, streams_TMD), options.rounding), post, comb};
}

Tensor hc_post(const Tensor& output_TD, const Tensor& streams_TMD, const Tensor& post_TM, const Tensor& comb_TMM,
               Rounding rounding) {
  Tensor sum = post_TM.unsqueeze(2) * output_TD.unsqueeze(1);
  for (int64_t i = 0; i < streams_TMD.size(1); ++i) {
    sum = sum + comb_TMM.select(1, i).unsqueeze(2) * streams_TMD.narrow(1, i, 1);
  }
  return rounded(sum, rounding);
}

Tensor hc_head(const Tensor& streams_TMD, const HcValues& weights, const HcOptions& options) {
  const Tensor mix = mixes(streams_TMD, weights.fn, options.norm_eps);
  const Tensor pre = at::sigmoid(mix * weights.scale + weights.base) + options.hc_eps;
  return rounded(collected(pre, streams_TMD), options.rounding);
}

}  // namespace kernels::reference
