// A small model of every mechanism, an engine over it, and the training-style forward that engines are compared with.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/transformer.h"
#include "rollout/engine.h"
#include "weight_sync/in_process.h"

namespace test {

// How far f32 log-probs of one token may lie apart when the same sums are taken in other orders (the project's bound
// for decode, chunked and batched execution against a whole forward).
constexpr float kSameLogProb = 3e-5f;

inline model::Config tiny_config() {
  using model::LayerKind;
  model::Config c;
  c.vocab_size = 64;
  c.hidden_size = 32;
  c.layer_types = {LayerKind::window, LayerKind::csa, LayerKind::hca, LayerKind::csa};
  c.num_hidden_layers = 4;
  c.hash_layers = {true, false, false, false};
  c.num_attention_heads = 2;
  c.head_dim = 32;
  c.qk_rope_head_dim = 8;
  c.q_lora_rank = 16;
  c.o_groups = 2;
  c.o_lora_rank = 16;
  c.sliding_window = 8;
  c.csa_ratio = 4;
  c.hca_ratio = 16;
  c.max_position_embeddings = 4096;
  c.index_n_heads = 2;
  c.index_head_dim = 32;
  c.index_topk = 4;
  c.hc_mult = 2;
  c.n_routed_experts = 4;
  c.num_experts_per_tok = 2;
  c.moe_intermediate_size = 32;
  c.num_nextn_predict_layers = 1;
  c.initializer_range = 0.15;
  c.check("tiny_config");
  return c;
}

// Token 2 + i is a piece of text; 0 and 1 are markers without bytes.
inline std::string_view bytes_of(int32_t id) {
  static const std::vector<std::string> pieces = [] {
    std::vector<std::string> p = {"", ""};
    for (int i = 2; i < 64; ++i) p.push_back({static_cast<char>('a' + i % 26), static_cast<char>('A' + i / 26)});
    return p;
  }();
  return pieces.at(static_cast<size_t>(id));
}

inline rollout::EngineSettings tiny_settings(const std::string& profile = "f32") {
  rollout::EngineSettings s;
  s.profile = profile;
  s.num_slots = 8;
  s.max_context = 160;
  s.max_batch_tokens = 256;
  s.prefill_chunk = 64;
  return s;
}

inline const model::Weights& tiny_weights(uint64_t seed = 1) {
  static std::map<uint64_t, model::Weights> made;
  const auto at = made.find(seed);
  return at != made.end() ? at->second
                          : made.emplace(seed, model::Weights::initialise(tiny_config(), seed)).first->second;
}

inline void publish(rollout::Engine& engine, const model::Weights& masters, int64_t version) {
  weight_sync::WeightsSource source(masters, weight_sync::publish_as(engine.engine_weights().profile()));
  weight_sync::publish(source, engine.weights(), version);
}

// An engine that serves tiny_weights(1) as version 1.
inline std::unique_ptr<rollout::Engine> tiny_engine(const rollout::EngineSettings& settings = tiny_settings()) {
  auto engine = std::make_unique<rollout::Engine>(tiny_config(), settings, rollout::Vocabulary{bytes_of, {}});
  publish(*engine, tiny_weights(), 1);
  return engine;
}

inline std::vector<int32_t> random_prompt(int64_t length, uint64_t seed) {
  base::Philox random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(2 + random.next_below(62)));
  return ids;
}

// A request whose answers go on to their limit.
inline rollout::Request request(std::vector<int32_t> prompt, int64_t max_new_tokens, int64_t num_samples = 1,
                                uint64_t seed = 5) {
  rollout::Request r;
  r.prompt_ids = std::move(prompt);
  r.sampling.max_new_tokens = max_new_tokens;
  r.sampling.ignore_eos = true;
  r.num_samples = num_samples;
  r.seeds = rollout::group_seeds(seed, num_samples);
  return r;
}

// By request, then index. Fails instead of running for ever.
inline std::vector<rollout::Output> run_all(rollout::Engine& engine, int max_steps = 5000) {
  std::vector<rollout::Output> outputs;
  for (int i = 0; i < max_steps && !engine.idle(); ++i) {
    for (rollout::Output& output : engine.step()) outputs.push_back(std::move(output));
  }
  EXPECT_TRUE(engine.idle());
  std::sort(outputs.begin(), outputs.end(),
            [](const auto& a, const auto& b) { return std::pair(a.request, a.index) < std::pair(b.request, b.index); });
  return outputs;
}

inline rollout::Output run_one(rollout::Engine& engine, const rollout::Request& r) {
  engine.submit(r);
  std::vector<rollout::Output> outputs = run_all(engine);
  EXPECT_EQ(outputs.size(), 1u);
  return outputs.at(0);
}

// Logits [T, V] by a whole forward without a cache, as training computes them.
inline at::Tensor forward_logits(const model::Weights& masters, const std::string& profile_name,
                                 const std::vector<int32_t>& ids) {
  const at::NoGradGuard no_grad;
  const model::Profile profile = model::Profile::parse(profile_name);
  const model::RunWeights run = model::RunWeights::trainable(masters, profile);
  const auto count = static_cast<int64_t>(ids.size());
  const model::RopeTables rope = model::RopeTables::make(run.config, count, at::kCPU);
  const model::Layout layout = model::make_layout(run.config, std::vector<model::Span>{{0, count}});
  const at::Tensor ids_T = at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
  const at::Tensor streams =
      model::forward_streams({.weights = run, .profile = profile, .layout = layout, .rope = rope, .ids_T = ids_T});
  return model::head_logits(run, model::final_hidden(run, profile, streams));
}

// log_softmax(z / T) of ids[1..] from forward_logits.
inline std::vector<float> forward_log_probs(const model::Weights& masters, const std::string& profile_name,
                                            const std::vector<int32_t>& ids, double temperature) {
  const auto count = static_cast<int64_t>(ids.size()) - 1;
  const at::Tensor logits = forward_logits(masters, profile_name, ids).to(at::kDouble) / temperature;
  const at::Tensor next_ids = at::tensor(std::vector<int64_t>(ids.begin() + 1, ids.end()), at::kLong);
  const at::Tensor chosen = at::log_softmax(logits.narrow(0, 0, count), 1).gather(1, next_ids.unsqueeze(1));
  const at::Tensor log_probs = chosen.to(at::kFloat).contiguous();
  return {log_probs.const_data_ptr<float>(), log_probs.const_data_ptr<float>() + count};
}

inline std::vector<int32_t> joined(std::vector<int32_t> prompt, const std::vector<int32_t>& response) {
  prompt.insert(prompt.end(), response.begin(), response.end());
  return prompt;
}

inline void expect_near(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], kSameLogProb) << what << ", element " << i;
}

inline void expect_same(const rollout::Output& got, const rollout::Output& want, const std::string& what) {
  EXPECT_EQ(got.response_ids, want.response_ids) << what;
  EXPECT_EQ(got.ended, want.ended) << what;
  EXPECT_EQ(got.text, want.text) << what;
  EXPECT_EQ(got.log_probs, want.log_probs) << what;
}

}  // namespace test
