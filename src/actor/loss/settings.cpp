// Relations between the settings of the loss.
#include "actor/loss/settings.h"

#include "actor/advantage.h"
#include "actor/loss/kl.h"
#include "actor/loss/reduction.h"
#include "base/error.h"

namespace actor {

using base::Code;
using base::fail;

void LossSettings::check() const {
  parse_estimator(advantage);
  parse_truncated(truncated);
  parse_kl_kind(kl_type);
  if (parse_reduction(reduction) == Reduction::constant && max_tokens <= 0) {
    fail(Code::invalid_argument, "loss.reduction is constant, but loss.max_tokens is {}; set it to the response limit",
         max_tokens);
  }
  if (dual_clip != 0 && !(dual_clip > 1)) {
    fail(Code::invalid_argument, "loss.dual_clip is {}; it must be above 1, or 0 to turn it off", dual_clip);
  }
  if (ratio != "token" && ratio != "sequence") {
    fail(Code::invalid_argument, "loss.ratio '{}' is unknown; choose token or sequence", ratio);
  }
  if (kl_loss_coef > 0 && kl_reward_coef > 0) {
    fail(Code::invalid_argument,
         "loss.kl_loss_coef ({}) and loss.kl_reward_coef ({}) are both set; set one of them to 0", kl_loss_coef,
         kl_reward_coef);
  }
  if (unbiased_kl && kl_loss_coef == 0) {
    fail(Code::invalid_argument, "loss.unbiased_kl is set, but loss.kl_loss_coef is 0, so it would be ignored");
  }
  if (tis_low > tis_high) {
    fail(Code::invalid_argument, "loss.tis_low ({}) is above loss.tis_high ({})", tis_low, tis_high);
  }
}

}  // namespace actor
