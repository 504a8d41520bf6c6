// The router's choice, the experts it chose, and the shared one.
#include "model/moe.h"

#include "kernels/experts.h"
#include "model/numerics.h"

namespace model {

kernels::RouterOptions router_options(const Config& config) {
  kernels::RouterOptions options;
  options.scoring = config.scoring_func == "softmax"   ? kernels::Scoring::softmax
                    : config.scoring_func == "sigmoid" ? kernels::Scoring::sigmoid
                                                       : kernels::Scoring::sqrtsoftplus;
  options.experts_per_token = config.num_experts_per_tok;
  options.normalise = config.norm_topk_prob && options.scoring != kernels::Scoring::softmax;
  options.factor = config.routed_scaling_factor;
  return options;
}

Tensor moe(const BlockCall& call, const MoeWeightsOf<Matrix>& weights, const Tensor& input_TD, const Tensor& ids_T) {
  const Config& c = call.config();
  const Profile& profile = call.pass.profile;
  const kernels::RouterOptions options = router_options(c);
  const Tensor logits_TE = kernels::linear(input_TD, weights.gate, kernels::Rounding::none);
  const Tensor expert_TA = chosen(call, &Choices::experts, &Choices::experts_TA, [&] {
    return weights.tid2eid.defined() ? kernels::hashed_experts(weights.tid2eid, ids_T)
                                     : kernels::best_experts(logits_TE, weights.bias, options);
  });
  call.see(Site::router_choice, expert_TA);
  const Tensor weight_TA = kernels::expert_weights(logits_TE, expert_TA, options);
  call.see(Site::router_weight, weight_TA);

  const Tensor in = linear_input(profile, input_TD);
  const double shared_limit = c.clamp_shared_expert ? c.swiglu_limit : 0;
  const Tensor shared_TD = kernels::shared_expert(in, {weights.shared_w1, weights.shared_w2, weights.shared_w3},
                                                  {shared_limit, rounding(profile), profile.quantise});
  call.see(Site::shared_output, shared_TD);
  const Tensor out_TD =
      kernels::routed_experts(in, expert_TA, weight_TA, shared_TD, {weights.w1, weights.w2, weights.w3},
                              {c.swiglu_limit, rounding(profile), profile.quantise});
  call.see(Site::expert_output, out_TD);
  return out_TD;
}

}  // namespace model
