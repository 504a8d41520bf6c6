// The definitions of kernels/hyper_connection.h by tensor operations: any device, f32 and f64, differentiable. fn as
// plain values; sums of products in the device's order.
#pragma once
#include "kernels/hyper_connection.h"

namespace kernels::reference {

struct HcValues {
  const Tensor &fn, &base, &scale;  // as kernels::HcWeights
};

HcInput hc_pre(const Tensor& streams_TMD, const HcValues& weights, const HcOptions& options);
Tensor hc_post(const Tensor& output_TD, const Tensor& streams_TMD, const Tensor& post_TM, const Tensor& comb_TMM,
               Rounding rounding);
Tensor hc_head(const Tensor& streams_TMD, const HcValues& weights, const HcOptions& options);
Tensor sinkhorn(const Tensor& logits_TMM, int64_t iters, double eps);

}  // namespace kernels::reference
