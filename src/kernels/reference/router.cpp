// Routing composed of tensor operations.
#include "kernels/reference/router.h"

namespace kernels::reference {
namespace {

// sqrt(log(1 + exp(l))), exact for large |l|.
Tensor sqrt_softplus(const Tensor& logits) {
  constexpr double kSmall = -30;  // below it log(1 + exp(l)) = exp(l) in f32
  const Tensor safe = logits.clamp_min(kSmall);
  const Tensor tiny = at::exp(logits.clamp_max(kSmall) / 2);  // clamped: an infinity here would give NaN gradients
  return at::where(logits < kSmall, tiny, (at::log1p(at::exp(-safe.abs())) + safe.clamp_min(0)).sqrt());
}

Tensor scores(const Tensor& logits_TE, Scoring scoring) {
  if (scoring == Scoring::softmax) return at::softmax(logits_TE, 1);
  if (scoring == Scoring::sigmoid) return at::sigmoid(logits_TE);
  return sqrt_softplus(logits_TE);
}

Tensor ascending(const Tensor& expert_TA) { return std::get<0>(expert_TA.sort(1)).to(at::kInt); }

}  // namespace

Tensor best_experts(const Tensor& logits_TE, const Tensor& bias_E, const RouterOptions& options) {
  const at::NoGradGuard no_grad;
  const Tensor key_TE = scores(logits_TE, options.scoring) + bias_E;
  const Tensor order_TE = std::get<1>(at::sort(key_TE, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  return ascending(order_TE.narrow(1, 0, options.experts_per_token));
}

Tensor expert_weights(const Tensor& logits_TE, const Tensor& expert_TA, const RouterOptions& options) {
  Tensor weight_TA = scores(logits_TE, options.scoring).gather(1, expert_TA.to(at::kLong));
  if (options.normalise && options.scoring != Scoring::softmax) weight_TA = weight_TA / weight_TA.sum(1, true);
  return weight_TA * options.factor;
}

Tensor hashed_experts(const Tensor& tid2eid_VA, const Tensor& ids_T) {
  return ascending(tid2eid_VA.index_select(0, ids_T));
}

}  // namespace kernels::reference
