#include "actor/loss/tis.h"

#include "actor/loss/objective.h"
#include "actor/loss/settings.h"
#include "actor/rl_vectors.h"
#include "base/error.h"

namespace actor {
namespace {

using actor_test::to_tensor;

TEST(Tis, ARolloutLogProbThatIsNotFiniteCountsAsRatioOneAndIsCounted) {  // decisions 15; no vector covers it
  const double infinity = std::numeric_limits<double>::infinity();
  TokenTensors tokens;
  tokens.active_N = to_tensor({1, 1, 1, 0, 1}, at::kBool);
  tokens.lp_new_N = to_tensor({-1, -1, -1, -1, -1}, at::kFloat);
  tokens.lp_old_N = tokens.lp_new_N;
  tokens.lp_rollout_N = to_tensor({-infinity, std::nan(""), -1.5, std::nan(""), -3}, at::kFloat);
  tokens.weight_N = at::full({5}, 0.25);
  tokens.sample_N = at::zeros({5}, at::kLong);
  tokens.num_samples = 1;
  tokens.advantage_N = at::ones({5});
  const Objective objective = policy_objective(tokens, LossSettings{});
  const std::vector<double> weights = actor_test::values_of(objective.tis_N);
  EXPECT_EQ(weights[0], 1);
  EXPECT_EQ(weights[1], 1);
  EXPECT_NEAR(weights[2], std::exp(0.5), 1e-6);
  EXPECT_EQ(weights[3], 0);
  EXPECT_EQ(weights[4], 2);  // exp(2) cut to the upper bound
  EXPECT_EQ(objective.nonfinite_N.sum().item<int64_t>(), 2);
  EXPECT_EQ(objective.tis_clipped_N.sum().item<int64_t>(), 1);
}

TEST(Tis, TheWeightCarriesNoGradient) {
  const Tensor lp_old_N = to_tensor({-1, -2}, at::kFloat).requires_grad_();
  EXPECT_FALSE(tis_weights(lp_old_N, lp_old_N.detach(), at::ones({2}, at::kBool), {}).requires_grad());
}

TEST(LossSettings, RefuseWhatWouldBeIgnoredOrContradicts) {
  const auto refused = [](auto&& change) {
    LossSettings settings;
    change(settings);
    EXPECT_THROW(settings.check(), base::Error);
  };
  EXPECT_NO_THROW(LossSettings{}.check());
  refused([](LossSettings& s) { s.reduction = "constant"; });
  refused([](LossSettings& s) { s.dual_clip = 0.5; });
  refused([](LossSettings& s) { s.kl_loss_coef = s.kl_reward_coef = 0.1; });
  refused([](LossSettings& s) { s.unbiased_kl = true; });
  refused([](LossSettings& s) { s.ratio = "group"; });
  refused([](LossSettings& s) { s.kl_type = "k9"; });
}

}  // namespace
}  // namespace actor
