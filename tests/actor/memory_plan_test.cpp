#include "actor/memory_plan.h"

#include <gtest/gtest.h>

#include "actor/tiny.h"

namespace actor {
namespace {

using actor_test::tiny_config;
using actor_test::tiny_settings;

TEST(MemoryPlan, WeightsAndOptimizerStateAreWhatTheActorHolds) {
  ActorSettings settings = tiny_settings();
  settings.loss.kl_loss_coef = 0.1;
  Actor actor(settings, actor_test::tiny_weights());
  actor.train(0, {actor_test::tiny_groups(actor, 2), 1});
  int64_t masters = 0, moments = 0, reference = 0;
  for (const auto& [name, tensor] : actor.state().tensors) {
    (name.starts_with("master.")      ? masters
     : name.starts_with("reference.") ? reference
                                      : moments) += static_cast<int64_t>(tensor.nbytes());
  }
  const MemoryPlan plan = plan_memory(tiny_config(), settings, 30);
  EXPECT_EQ(plan.masters_bytes, masters);
  EXPECT_EQ(plan.run_weights_bytes, model::RunWeights::trainable(actor.masters(), settings.precision()).size_bytes());
  EXPECT_EQ(plan.reference_bytes,
            reference + model::RunWeights::frozen(actor.masters(), settings.precision()).size_bytes());
  EXPECT_EQ(plan.moments_bytes, moments);
  EXPECT_EQ(plan.gradients_bytes, moments / 2);
}

TEST(MemoryPlan, FewerTokensAndRecomputeNeedLess) {
  ActorSettings settings = tiny_settings();
  settings.recompute = false;
  settings.tokens_per_microbatch = 4096;
  const int64_t full = plan_memory(tiny_config(), settings, 100).activations_bytes;
  settings.tokens_per_microbatch = 1024;
  EXPECT_EQ(plan_memory(tiny_config(), settings, 100).activations_bytes * 4, full);
  EXPECT_EQ(plan_memory(tiny_config(), settings, 4096).activations_bytes > full / 4,
            true);  // a whole sequence at least
  settings.tokens_per_microbatch = 4096;
  settings.recompute = true;
  EXPECT_LT(plan_memory(tiny_config(), settings, 100).activations_bytes, full);
}

}  // namespace
}  // namespace actor
