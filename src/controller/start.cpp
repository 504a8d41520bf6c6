// Plans and actors from settings and inputs.
#include "controller/start.h"

#include "actor/memory_plan.h"
#include "base/rng.h"
#include "checkpoint/load.h"
#include "controller/warmup.h"
#include "rollout/memory_plan.h"

namespace controller {
namespace {

// Of tensors that load_state will fill: zeros, because a number format may refuse what happens to lie in memory.
model::Weights blank_weights(const model::Config& config) {
  model::Weights weights = model::Weights::allocate(config, at::kCPU);
  weights.visit([](const model::TensorInfo&, tensor::Tensor& value) { value.zero_(); });
  return weights;
}

void add_actor(const RunSettings& settings, const Inputs& inputs, std::vector<MemoryPart>& parts) {
  const actor::MemoryPlan plan = actor::plan_memory(inputs.config, settings.actor, inputs.longest);
  parts.push_back({"actor weights and optimizer",
                   plan.masters_bytes + plan.run_weights_bytes + plan.gradients_bytes + plan.moments_bytes, ""});
  if (plan.reference_bytes > 0) {
    parts.push_back(
        {"reference policy", plan.reference_bytes, "actor.loss.kl_loss_coef and actor.loss.kl_reward_coef to 0"});
  }
  parts.push_back({"actor activations", plan.activations_bytes,
                   settings.actor.recompute ? "actor.tokens_per_microbatch or rollout.sampling.max_new_tokens"
                                            : "actor.tokens_per_microbatch, or turn on actor.recompute"});
  parts.push_back({"actor logits", plan.logits_bytes, "actor.head_rows"});
}

void add_engine(const RunSettings& settings, const Inputs& inputs, std::vector<MemoryPart>& parts) {
  const rollout::MemoryPlan plan = rollout::plan_memory(inputs.config, settings.rollout.engine);
  parts.push_back({"engine weights, and the copy that arrives", plan.weights_bytes + plan.update_bytes, ""});
  parts.push_back({"engine caches", plan.cache_bytes, "rollout.engine.num_slots or rollout.engine.max_context"});
  parts.push_back({"engine pass", plan.pass_bytes, "rollout.engine.max_batch_tokens"});
}

}  // namespace

std::vector<MemoryPart> plan_run(const RunSettings& settings, const Inputs& inputs, Purpose purpose) {
  std::vector<MemoryPart> parts;
  if (purpose == Purpose::training) {
    add_actor(settings, inputs, parts);
  } else {
    const actor::MemoryPlan plan = actor::plan_memory(inputs.config, settings.actor, 2);
    parts.push_back({"weights as they are loaded", plan.masters_bytes, ""});
  }
  if (purpose == Purpose::evaluation || settings.run.steps > 0 || !inputs.sets.empty()) {
    add_engine(settings, inputs, parts);
  }
  return parts;
}

model::Weights starting_weights(const RunSettings& settings, const model::Config& config) {
  if (!settings.model.path.empty()) return checkpoint::load_weights(settings.model.path);
  const auto seed = static_cast<uint64_t>(settings.run.seed);
  return model::Weights::initialise(config, base::derive_seed(seed, "weights"));
}

std::unique_ptr<actor::Actor> make_actor(const RunSettings& settings, const Inputs& inputs, Phase phase,
                                         const std::optional<Saved>& saved) {
  model::Weights weights = saved ? blank_weights(saved->config) : starting_weights(settings, inputs.config);
  auto made = std::make_unique<actor::Actor>(phase == Phase::warmup ? warmup_actor(settings) : settings.actor,
                                             std::move(weights), inputs.vocabulary().ids_without_token);
  if (saved) made->load_state(saved->actor, saved->where);
  return made;
}

std::unique_ptr<actor::Actor> begin_learning(const RunSettings& settings, const Inputs& inputs,
                                             std::unique_ptr<actor::Actor> warmed_up) {
  model::Weights weights = warmed_up->masters();  // shares the tensors
  warmed_up.reset();
  return std::make_unique<actor::Actor>(settings.actor, std::move(weights), inputs.vocabulary().ids_without_token);
}

}  // namespace controller
