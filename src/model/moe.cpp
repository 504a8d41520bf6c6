// Routing, the experts' products over sorted rows, and the ordered sum.
#include "model/moe.h"

#include <ATen/ops/_grouped_mm.h>

#include "model/numerics.h"

namespace model {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class GroupedLinear : public torch::autograd::Function<GroupedLinear> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input_PK, const Tensor& weight_ENK,
                        const Tensor& ends_E) {
    context->save_for_backward({input_PK, weight_ENK, ends_E});
    return at::_grouped_mm(input_PK, weight_ENK.transpose(1, 2), ends_E);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor dout = grads[0].contiguous();
    Tensor dinput, dweight;
    if (context->needs_input_grad(0)) dinput = at::_grouped_mm(dout, saved[1], saved[2]);
    if (context->needs_input_grad(1)) dweight = at::_grouped_mm(dout.t(), saved[0], saved[2]);
    return {dinput, dweight, Tensor()};
  }
};

// sqrt(log(1 + exp(l))), exact for large |l|.
Tensor sqrt_softplus(const Tensor& logits) {
  constexpr double kSmall = -30;  // below it log(1 + exp(l)) = exp(l) in f32
  const Tensor safe = logits.clamp_min(kSmall);
  const Tensor tiny = at::exp(logits.clamp_max(kSmall) / 2);  // clamped: an infinity here would give NaN gradients
  return at::where(logits < kSmall, tiny, (at::log1p(at::exp(-safe.abs())) + safe.clamp_min(0)).sqrt());
}

Tensor scores(const Config& config, const Tensor& logits_TE) {
  if (config.scoring_func == "softmax") return at::softmax(logits_TE, 1);
  if (config.scoring_func == "sigmoid") return at::sigmoid(logits_TE);
  return sqrt_softplus(logits_TE);
}

Tensor choose_experts(const Config& config, const MoeWeights& weights, const Tensor& score_TE, const Tensor& ids_T) {
  const at::NoGradGuard no_grad;
  if (weights.tid2eid.defined()) return std::get<0>(gather_rows(weights.tid2eid, ids_T).sort(1));
  const Tensor order = std::get<1>(at::sort(score_TE + weights.bias, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  return std::get<0>(order.narrow(1, 0, config.num_experts_per_tok).sort(1));
}

// clamp, silu(g) * u, times the routing weight, rounded (spec 5.2, decisions 22). limit <= 0: no clamp.
Tensor swiglu(const Profile& profile, const Tensor& gate, const Tensor& up, double limit, const Tensor& weight) {
  const Tensor g = limit > 0 ? gate.clamp_max(limit) : gate, u = limit > 0 ? up.clamp(-limit, limit) : up;
  const Tensor h = at::silu(g) * u;
  return rounded(profile, weight.defined() ? weight * h : h);
}

}  // namespace

Tensor grouped_linear(const Tensor& input_PK, const Tensor& weight_ENK, const Tensor& ends_E) {
  constexpr int64_t kAligned = 4;  // _grouped_mm wants rows of whole 16 bytes
  const int64_t num_out = weight_ENK.size(1), more_out = -num_out & (kAligned - 1),
                more_in = -weight_ENK.size(2) & (kAligned - 1);
  if (more_out == 0 && more_in == 0) return GroupedLinear::apply(input_PK, weight_ENK, ends_E);
  const Tensor input = at::constant_pad_nd(input_PK, {0, more_in}),
               weight = at::constant_pad_nd(weight_ENK, {0, more_in, 0, more_out});
  return GroupedLinear::apply(input, weight, ends_E).narrow(1, 0, num_out);
}

Routing route(const Config& config, const MoeWeights& weights, const Tensor& input_TD, const Tensor& ids_T,
              Tensor* chosen_TA, bool replay) {
  const Tensor score_TE = scores(config, at::linear(input_TD, weights.gate));
  const Tensor expert_TA = replay ? *chosen_TA : choose_experts(config, weights, score_TE, ids_T);
  if (chosen_TA != nullptr) *chosen_TA = expert_TA;
  Tensor weight_TA = score_TE.gather(1, expert_TA);
  if (config.norm_topk_prob && config.scoring_func != "softmax") weight_TA = weight_TA / weight_TA.sum(1, true);
  return {expert_TA, weight_TA * config.routed_scaling_factor};
}

Tensor moe(const Config& config, const Profile& profile, const MoeWeights& weights, const Tensor& input_TD,
           const Routing& routing) {
  const int64_t num_tokens = input_TD.size(0), per_token = config.num_experts_per_tok;
  const Tensor in_TD = linear_input(profile, input_TD);
  const auto [expert_P, pair_P] =
      at::sort(routing.expert_TA.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor ends_E = at::searchsorted(expert_P, at::arange(config.n_routed_experts, expert_P.options()),
                                         /*out_int32=*/true, /*right=*/true);
  const Tensor in_PD = gather_rows(in_TD, pair_P.floor_divide(per_token));
  const Tensor gate_PF = rounded(profile, grouped_linear(in_PD, weights.w1, ends_E));
  const Tensor up_PF = rounded(profile, grouped_linear(in_PD, weights.w3, ends_E));
  const Tensor weight_P1 = gather_rows(routing.weight_TA.reshape({-1, 1}), pair_P);
  const Tensor hidden_PF = linear_input(profile, swiglu(profile, gate_PF, up_PF, config.swiglu_limit, weight_P1));
  const Tensor out_PD = rounded(profile, grouped_linear(hidden_PF, weights.w2, ends_E));
  const Tensor place_P = at::empty_like(pair_P).scatter_(0, pair_P, at::arange(pair_P.size(0), pair_P.options()));
  const Tensor out_TAD = gather_rows(out_PD, place_P).view({num_tokens, per_token, -1});

  const double shared_limit = config.clamp_shared_expert ? config.swiglu_limit : 0;
  const Tensor shared_gate = project(profile, in_TD, weights.shared_w1),
               shared_up = project(profile, in_TD, weights.shared_w3);
  const Tensor shared_hidden = linear_input(profile, swiglu(profile, shared_gate, shared_up, shared_limit, {}));
  Tensor sum_TD = out_TAD.select(1, 0);
  for (int64_t a = 1; a < per_token; ++a) sum_TD = sum_TD + out_TAD.select(1, a);
  return rounded(profile, sum_TD + project(profile, shared_hidden, weights.shared_w2));
}

}  // namespace model
