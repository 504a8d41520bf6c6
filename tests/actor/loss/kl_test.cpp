#include "actor/loss/kl.h"

#include <numeric>

#include "actor/rl_vectors.h"
#include "base/error.h"

namespace actor {
namespace {

using actor_test::Json;
using actor_test::to_tensor;

TEST(Kl, RewardVectorsAgree) {
  for (const auto& vector : actor_test::vectors_of("kl_reward")) {
    const Tensor lp_old_N = to_tensor(vector.inputs["lp_old"], at::kDouble);
    const Tensor lp_ref_N = to_tensor(vector.inputs["lp_ref"], at::kDouble);
    const Tensor kl_N =
        kl_terms(lp_old_N, lp_ref_N, at::ones_like(lp_old_N, at::kBool), parse_kl_kind(vector.inputs["type"]));
    actor_test::expect_near(kl_N, vector.expected["kl"], actor_test::kLimitF64, 0, vector.id + " kl");
    const std::vector<double> kl = actor_test::values_of(kl_N);
    size_t start = 0;
    for (size_t j = 0; j < vector.inputs["mask"].size(); ++j) {
      std::vector<bool> active;
      for (const Json& bit : vector.inputs["mask"][j]) active.push_back(bit.get<int>() != 0);
      const std::vector<double> rewards = token_rewards(
          vector.inputs["rewards"][j], std::span(kl).subspan(start, active.size()), active, vector.inputs["kl_coef"]);
      actor_test::expect_near(rewards, vector.expected["token_rewards"][j], actor_test::kLimitF64, 0,
                              vector.id + " rewards");
      start += active.size();
    }
  }
}

TEST(Kl, ThePoliciesBeingEqualGivesZeroForEveryEstimate) {
  const Tensor lp_N = to_tensor({-0.5, -3, -20}, at::kFloat);
  for (const char* name : {"k1", "k2", "k3", "low_var_kl"}) {
    const Tensor kl_N = kl_terms(lp_N, lp_N, at::ones({3}, at::kBool), parse_kl_kind(name));
    EXPECT_EQ(actor_test::values_of(kl_N), std::vector<double>(3, 0.0)) << name;
  }
  EXPECT_THROW(parse_kl_kind("k4"), base::Error);
}

}  // namespace
}  // namespace actor
