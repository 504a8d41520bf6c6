// Composition of the loss.
#include "actor/loss/objective.h"

#include "actor/loss/kl.h"
#include "actor/loss/log_ratio.h"
#include "actor/loss/policy_loss.h"
#include "actor/loss/reduction.h"
#include "actor/loss/tis.h"

namespace actor {

namespace {

Tensor measured(const Tensor& value_N, const TokenTensors& tokens) {
  return reduce_tokens(value_N.detach().to(at::kDouble), tokens.weight_N.to(at::kDouble), tokens.active_N);
}

// Multiplies the policy loss by the importance weights and records them.
Tensor weighted_by_importance(const Tensor& policy_N, const TokenTensors& tokens, const LossSettings& settings,
                              Objective& objective) {
  const TisBounds bounds{settings.tis_low, settings.tis_high, settings.tis_drop_outside};
  objective.tis_N = tis_weights(tokens.lp_old_N, tokens.lp_rollout_N, tokens.active_N, bounds);
  const LogRatio gap = token_log_ratio(tokens.lp_rollout_N, tokens.lp_old_N, tokens.active_N);
  objective.tis_clipped_N = tokens.active_N & (gap.difference_N.exp() != objective.tis_N);
  objective.nonfinite_N = objective.nonfinite_N | gap.nonfinite_N;
  return policy_N * objective.tis_N;
}

void add_kl(const TokenTensors& tokens, const LossSettings& settings, Objective& objective) {
  std::optional<Tensor> weight_N;
  if (settings.unbiased_kl) weight_N = unbiased_kl_weight(tokens.lp_new_N, tokens.lp_old_N, tokens.active_N);
  const Tensor kl_N =
      kl_terms(tokens.lp_new_N, tokens.lp_ref_N, tokens.active_N, parse_kl_kind(settings.kl_type), weight_N);
  objective.loss = objective.loss + settings.kl_loss_coef * reduce_tokens(kl_N, tokens.weight_N, tokens.active_N);
  objective.kl_loss = measured(kl_N, tokens);
  objective.kl_N = kl_N.detach();
}

void add_entropy_bonus(const TokenTensors& tokens, const LossSettings& settings, Objective& objective) {
  if (settings.entropy_coef > 0) {
    const Tensor bonus = reduce_tokens(tokens.entropy_N, tokens.weight_N, tokens.active_N);
    objective.loss = objective.loss - settings.entropy_coef * bonus;
  }
  objective.entropy = measured(tokens.entropy_N, tokens);
}

}  // namespace

Objective policy_objective(const TokenTensors& tokens, const LossSettings& settings) {
  const bool of_sequence = settings.ratio == "sequence";
  const LogRatio ratio = of_sequence ? sequence_log_ratio(tokens.lp_new_N, tokens.lp_old_N, tokens.active_N,
                                                          tokens.sample_N, tokens.num_samples)
                                     : token_log_ratio(tokens.lp_new_N, tokens.lp_old_N, tokens.active_N);
  const PolicyTerms terms = clipped_policy_loss(ratio.difference_N, tokens.advantage_N, tokens.active_N,
                                                {settings.clip_low, settings.clip_high, settings.dual_clip});
  Objective objective;
  objective.ratio_N = terms.ratio_N.detach();
  objective.ppo_kl_N = ratio.difference_N.detach();
  objective.clipped_N = terms.clipped_N;
  objective.nonfinite_N = ratio.nonfinite_N;
  Tensor policy_N = terms.loss_N;
  if (settings.tis && tokens.lp_rollout_N.defined()) {
    policy_N = weighted_by_importance(policy_N, tokens, settings, objective);
  }
  objective.loss = reduce_tokens(policy_N, tokens.weight_N, tokens.active_N);
  objective.policy_loss = measured(policy_N, tokens);
  objective.policy_N = policy_N.detach();
  if (tokens.lp_ref_N.defined()) add_kl(tokens, settings, objective);
  if (tokens.entropy_N.defined()) add_entropy_bonus(tokens, settings, objective);
  return objective;
}

Tensor sft_objective(const Tensor& lp_N, const Tensor& weight_N, const Tensor& active_N) {
  return reduce_tokens(-lp_N, weight_N, active_N);
}

}  // namespace actor
