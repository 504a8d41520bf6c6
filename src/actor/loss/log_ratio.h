// How far the policy has moved at each token since its answers were written: d = lp_old - lp_new, the k1 estimate of
// KL(old || new) that PPO's ratio exp(-d) comes from. A difference that is not finite on an active token counts as 0,
// without gradient; inactive tokens are never read (decisions 15).
//
// Letters: N tokens, S samples. Sources: PPO, arXiv 1707.06347; sequence level: GSPO, arXiv 2507.18071 eq. 7.
#pragma once
#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;

struct LogRatio {
  Tensor difference_N;  // lp_old - lp_new, 0 where inactive or not finite; the gradient flows to lp_new
  Tensor nonfinite_N;   // bool: active, and replaced by 0
};

LogRatio token_log_ratio(const Tensor& lp_new_N, const Tensor& lp_old_N, const Tensor& active_N);

// The mean of d over the active tokens of a sample, at each of its tokens. sample_N: int64 in [0, num_samples). One
// active token that is not finite makes its whole sample count as 0.
LogRatio sequence_log_ratio(const Tensor& lp_new_N, const Tensor& lp_old_N, const Tensor& active_N,
                            const Tensor& sample_N, int64_t num_samples);

}  // namespace actor
