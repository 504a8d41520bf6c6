// Settings of the loss. Loss mathematics: the headers beside this one.
#pragma once
#include <string>

#include "base/settings.h"

namespace actor {

struct LossSettings {
  std::string advantage = "grpo";
  std::string truncated = "keep";
  double truncated_penalty = 1;
  std::string ratio = "token";
  double clip_low = 0.2;
  double clip_high = 0.28;
  double dual_clip = 0;
  std::string reduction = "token";
  int64_t max_tokens = 0;
  std::string kl_type = "low_var_kl";
  double kl_loss_coef = 0;
  double kl_reward_coef = 0;
  bool unbiased_kl = false;
  double entropy_coef = 0;
  bool tis = true;
  double tis_low = 0;
  double tis_high = 2;
  bool tis_drop_outside = false;

  template <class V>
  void visit(V&& v) {
    v("advantage", advantage,
      "reward against the group: grpo (r-mean)/(std+1e-6), dr_grpo r-mean, rloo r-mean of the others",
      base::OneOf{"grpo", "dr_grpo", "rloo"});
    v("truncated", truncated,
      "answers cut by the length limit, after the group's statistics: keep, penalise (advantage minus "
      "truncated_penalty) or "
      "mask (out of the loss, still counted as a sample)",
      base::OneOf{"keep", "penalise", "mask"});
    v("truncated_penalty", truncated_penalty, "what truncated = penalise takes from the advantage",
      base::Range{0, 1e6});
    v("ratio", ratio, "the policy ratio is of each token (PPO, GRPO) or the mean over the sample (sequence, as GSPO)",
      base::OneOf{"token", "sequence"});
    v("clip_low", clip_low, "the policy ratio is clipped below 1 - clip_low", base::Range{0, 1});
    v("clip_high", clip_high, "the policy ratio is clipped above 1 + clip_high", base::Range{0, 1e6});
    v("dual_clip", dual_clip, "bound of the loss for negative advantages, above 1; 0 turns it off",
      base::Range{0, 1e6});
    v("reduction", reduction,
      "from tokens to the step: token (mean over all tokens), sample (mean of samples' means), constant (sum / samples "
      "/ "
      "max_tokens)",
      base::OneOf{"token", "sample", "constant"});
    v("max_tokens", max_tokens, "the constant of reduction = constant, usually the response limit",
      base::Range{0, 1 << 24});
    v("kl_type", kl_type, "estimate of the KL divergence from the reference policy",
      base::OneOf{"k1", "k2", "k3", "low_var_kl"});
    v("kl_loss_coef", kl_loss_coef, "weight of the KL in the loss; above 0 keeps a reference copy of the start weights",
      base::Range{0, 1e6});
    v("kl_reward_coef", kl_reward_coef, "weight of the KL in the reward; excludes kl_loss_coef", base::Range{0, 1e6});
    v("unbiased_kl", unbiased_kl, "weight the KL of the loss by the policy ratio, with gradient");
    v("entropy_coef", entropy_coef, "weight of the entropy bonus", base::Range{0, 1e6});
    v("tis", tis, "truncated importance sampling between the rollout's log-probs and the actor's");
    v("tis_low", tis_low, "lowest importance weight", base::Range{0, 1});
    v("tis_high", tis_high, "highest importance weight", base::Range{1, 1e6});
    v("tis_drop_outside", tis_drop_outside, "weights outside the bounds become 0 instead of the bound (IcePop)");
  }

  bool needs_reference() const { return kl_loss_coef > 0 || kl_reward_coef > 0; }
  // Relations between fields. Error{invalid_argument} naming the settings to change.
  void check() const;
};

}  // namespace actor
