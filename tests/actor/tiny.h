// A DeepSeek-V4 of 4 layers with every mechanism, small enough for a step in milliseconds, and groups of answers for
// it.
#pragma once
#include <string>
#include <vector>

#include "actor/actor.h"
#include "base/rng.h"

namespace actor_test {

inline model::Config tiny_config() {
  model::Config config;
  config.vocab_size = 24;
  config.hidden_size = 32;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 2;
  config.head_dim = 16;
  config.qk_rope_head_dim = 8;
  config.q_lora_rank = 16;
  config.o_groups = 2;
  config.o_lora_rank = 8;
  config.sliding_window = 6;
  config.layer_types = {model::LayerKind::window, model::LayerKind::csa, model::LayerKind::hca, model::LayerKind::csa};
  config.csa_ratio = 2;
  config.hca_ratio = 4;
  config.index_n_heads = 4;
  config.index_head_dim = 16;
  config.index_topk = 3;
  config.hc_mult = 2;
  config.hc_sinkhorn_iters = 5;
  config.n_routed_experts = 4;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 16;
  config.hash_layers = {true, false, false, false};
  config.num_nextn_predict_layers = 1;
  config.max_position_embeddings = 4096;
  config.initializer_range = 0.2;
  config.check("tiny_config");
  return config;
}

inline model::Weights tiny_weights(uint64_t seed = 1) { return model::Weights::initialise(tiny_config(), seed); }

inline actor::ActorSettings tiny_settings() {
  actor::ActorSettings settings;
  settings.profile = "f32";
  settings.tokens_per_microbatch = 64;
  settings.head_rows = 7;
  settings.optimizer.schedule.lr = 1e-2;
  return settings;
}

inline std::vector<int32_t> random_ids(base::Philox& random, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random.next_below(24)));
  return ids;
}

// Groups of `size` answers of 1 to 14 tokens to prompts of 1 to 9 tokens, random rewards 0 and 1 of which each group
// has both, and rollout log-probs of `actor` plus a little noise.
inline std::vector<data::Group> tiny_groups(const actor::Actor& actor, int64_t count, int64_t size = 4,
                                            float noise = 0.05f, uint64_t seed = 5) {
  base::Philox random(seed);
  std::vector<data::Group> groups;
  std::vector<actor::ScoreRequest> requests;
  for (int64_t g = 0; g < count; ++g) {
    data::Group group;
    group.id = 100 + g;
    group.problem.prompt_ids = random_ids(random, 1 + static_cast<int64_t>(random.next_below(9)));
    for (int64_t s = 0; s < size; ++s) {
      data::Sample sample;
      sample.group_id = group.id;
      sample.index = s;
      sample.response_ids = random_ids(random, 1 + static_cast<int64_t>(random.next_below(14)));
      sample.reward = s == 0 ? 1 : s == 1 ? 0 : static_cast<double>(random.next_below(2));
      actor::ScoreRequest request{group.problem.prompt_ids, static_cast<int64_t>(group.problem.prompt_ids.size())};
      request.ids.insert(request.ids.end(), sample.response_ids.begin(), sample.response_ids.end());
      requests.push_back(std::move(request));
      group.samples.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  const std::vector<actor::Scored> scored = actor.score(requests, 1);
  size_t next = 0;
  for (data::Group& group : groups) {
    for (data::Sample& sample : group.samples) {
      sample.log_probs = scored[next++].log_probs;
      for (float& lp : sample.log_probs) lp += noise * static_cast<float>(random.next_normal());
    }
  }
  return groups;
}

// Deep copies: what the state was, whatever happens to the actor.
inline actor::ActorState frozen_state(const actor::Actor& actor) {
  actor::ActorState state = actor.state();
  for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
  return state;
}

// The names of tensors that differ in any bit, or that one side lacks.
inline std::vector<std::string> differing(const actor::NamedTensors& a, const actor::NamedTensors& b) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || !at::equal(tensor, other->second)) names.push_back(name);
  }
  for (const auto& [name, tensor] : b) {
    if (!a.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace actor_test
