// config.json: both spellings, the round trip, and every refusal.
#include "model/config.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "fixture.h"

namespace test {
namespace {

using base::Json;
using model::Config;
using model::LayerKind;

Json published() { return base::read_json(model_golden("flash_config.json")); }
Json transformers() { return base::read_json(model_golden("flash_config_transformers.json")); }
Config parse(const Json& json) { return Config::from_json(json, "config.json"); }
std::string text(const Config& config) { return config.to_json().dump(1); }

TEST(Config, ThePublishedFormAndTransformersFormGiveTheSameConfig) {
  EXPECT_EQ(text(parse(published())), text(parse(transformers())));
}

TEST(Config, ThePublishedFormIsReadFieldByField) {
  const Config c = parse(published());
  EXPECT_EQ(c.vocab_size, 129280);
  EXPECT_EQ(c.hidden_size, 4096);
  EXPECT_EQ(c.num_hidden_layers, 43);
  EXPECT_EQ(c.qk_rope_head_dim, 64);
  EXPECT_EQ(c.layer_types.size(), 43u);
  EXPECT_EQ(c.layer_types[2], LayerKind::csa);
  EXPECT_EQ(c.layer_types[3], LayerKind::hca);
  EXPECT_EQ(c.csa_ratio, 4);
  EXPECT_EQ(c.hca_ratio, 128);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.compress_rope_theta, 160000);
  ASSERT_TRUE(c.rope_scaling.has_value());
  EXPECT_EQ(c.rope_scaling->factor, 16);
  EXPECT_EQ(c.rope_scaling->original_max_position_embeddings, 65536);
  EXPECT_EQ(c.routed_scaling_factor, 1.5);
  EXPECT_EQ(c.num_nextn_predict_layers, 1);
  EXPECT_TRUE(c.clamp_shared_expert);
  EXPECT_EQ(c.expert_dtype, "fp4");
}

TEST(Config, WhatIsWrittenIsReadBackInEitherSpelling) {
  for (const Config& config :
       {parse(published()), Config::load(model_golden("small")), Config::load(model_golden("edges"))}) {
    Json written = config.to_json();
    EXPECT_EQ(text(parse(written)), written.dump(1));
    for (const char* key : {"layer_types", "compress_rates", "rope_parameters", "partial_rotary_factor"})
      written.erase(key);
    if (written.contains("num_hash_layers")) written.erase("mlp_layer_types");
    EXPECT_EQ(text(parse(written)), text(config)) << "the published spelling alone";
  }
}

TEST(Config, WhatThePublishedSpellingCannotSayIsLeftOutOfIt) {
  Config config = parse(published());
  config.hash_layers[10] = true;
  EXPECT_FALSE(config.to_json().contains("num_hash_layers"));
  config.csa_ratio = 8;
  EXPECT_FALSE(config.to_json().contains("compress_ratios"));
  EXPECT_EQ(text(parse(config.to_json())), text(config));
}

TEST(Config, LegacyNamesAreRead) {
  Json json = transformers();
  json.erase("compress_rates");
  json["compress_rate_hca"] = 64;
  EXPECT_EQ(parse(json).hca_ratio, 64);
  json = transformers();
  json.erase("n_routed_experts");
  json["num_local_experts"] = 32;
  EXPECT_EQ(parse(json).n_routed_experts, 32);
  json = published();
  json.erase("qk_rope_head_dim");
  EXPECT_EQ(parse(json).qk_rope_head_dim, 64);  // the default share of head_dim
  json.erase("rope_scaling");
  EXPECT_FALSE(parse(json).rope_scaling.has_value());
}

struct BadField {
  const char* pointer;  // JSON pointer into the published form (or transformers' where it starts with '@')
  const char* value;    // JSON
  std::vector<std::string> parts;
};

void expect_refused(const BadField& bad) {
  const bool hf = bad.pointer[0] == '@';
  Json json = hf ? transformers() : published();
  json[Json::json_pointer(bad.pointer + (hf ? 1 : 0))] = base::parse_json(bad.value, "test");
  SCOPED_TRACE(fmt::format("{} = {}", bad.pointer, bad.value));
  std::vector<std::string> parts = bad.parts;
  parts.push_back("config.json");
  expect_error(base::Code::invalid_argument, parts, [&] { parse(json); });
}

TEST(Config, AFieldOfTheWrongTypeIsNamed) {
  for (const BadField& bad : std::vector<BadField>{
           {"/vocab_size", "\"many\"", {"vocab_size", "\"many\"", "an integer"}},
           {"/vocab_size", "1.5", {"vocab_size", "1.5", "an integer"}},
           {"/vocab_size", "18446744073709551615", {"vocab_size", "an integer"}},
           {"/hidden_size", "[4096]", {"hidden_size", "an integer"}},
           {"/rms_norm_eps", "\"1e-6\"", {"rms_norm_eps", "a number"}},
           {"/norm_topk_prob", "1", {"norm_topk_prob", "true or false"}},
           {"/scoring_func", "3", {"scoring_func", "a text"}},
           {"/compress_ratios", "4", {"compress_ratios", "a list"}},
           {"/compress_ratios", "[0, 0]", {"compress_ratios", "num_hidden_layers = 43"}},
           {"/compress_ratios/5", "\"4\"", {"compress_ratios", "integers"}},
           {"@/layer_types", "\"csa\"", {"layer_types", "a list"}},
           {"@/mlp_layer_types", "3", {"mlp_layer_types", "a list"}},
       }) {
    expect_refused(bad);
  }
}

TEST(Config, AValueThatTheModelDoesNotHaveIsNamed) {
  for (const BadField& bad : std::vector<BadField>{
           {"/model_type", "\"llama\"", {"model_type", "llama", "deepseek_v4"}},
           {"/num_key_value_heads", "8", {"num_key_value_heads", "8", "the only value"}},
           {"/n_shared_experts", "2", {"n_shared_experts"}},
           {"/tie_word_embeddings", "true", {"tie_word_embeddings"}},
           {"/hidden_act", "\"gelu\"", {"hidden_act", "gelu", "silu"}},
           {"@/attention_bias", "true", {"attention_bias"}},
           {"@/layer_types/0", "\"full_attention\"", {"layer_types", "full_attention", "sliding_attention"}},
           {"@/mlp_layer_types/0", "\"dense\"", {"mlp_layer_types", "dense", "hash_moe"}},
           {"/rope_scaling/type", "\"linear\"", {"rope_type", "linear", "yarn"}},
           {"@/rope_parameters/compress/attention_factor", "1.277", {"attention_factor", "1.277"}},
           {"/compress_ratios/3", "64", {"compress_ratios", "one other ratio"}},
           {"/compress_ratios/43", "4", {"compress_ratios", "MTP"}},
           {"/scoring_func", "\"tanh\"", {"scoring_func", "sqrtsoftplus"}},
           {"/expert_dtype", "\"int4\"", {"expert_dtype", "fp4"}},
       }) {
    expect_refused(bad);
  }
}

TEST(Config, ASizeOutOfRangeIsNamedWithTheRange) {
  for (const BadField& bad : std::vector<BadField>{
           {"/vocab_size", "1", {"vocab_size is 1", "between 2"}},
           {"/vocab_size", "99999999999", {"vocab_size", "between"}},
           {"/hidden_size", "0", {"hidden_size is 0"}},
           {"/num_hidden_layers", "0", {"num_hidden_layers", "between 1"}},
           {"/num_hidden_layers", "1000000000", {"num_hidden_layers", "between 1"}},
           {"/num_attention_heads", "0", {"num_attention_heads"}},
           {"/num_attention_heads", "65", {"o_groups", "divisor", "65"}},
           {"/head_dim", "-1", {"head_dim is -1"}},
           {"/head_dim", "32", {"qk_rope_head_dim is 64", "between 2 and 32"}},
           {"/qk_rope_head_dim", "63", {"qk_rope_head_dim", "even"}},
           {"/index_head_dim", "0", {"index_head_dim is 0"}},
           {"/index_head_dim", "32", {"qk_rope_head_dim", "between 2 and 32"}},
           {"/index_n_heads", "0", {"index_n_heads"}},
           {"/index_topk", "0", {"index_topk"}},
           {"/q_lora_rank", "0", {"q_lora_rank"}},
           {"/o_lora_rank", "0", {"o_lora_rank"}},
           {"/o_groups", "0", {"o_groups"}},
           {"/sliding_window", "0", {"sliding_window"}},
           {"/hc_mult", "0", {"hc_mult"}},
           {"/hc_sinkhorn_iters", "0", {"hc_sinkhorn_iters"}},
           {"/hc_eps", "-1.0", {"hc_eps"}},
           {"/n_routed_experts", "0", {"n_routed_experts"}},
           {"/num_experts_per_tok", "257", {"num_experts_per_tok is 257", "256"}},
           {"/moe_intermediate_size", "0", {"moe_intermediate_size"}},
           {"/num_nextn_predict_layers", "2", {"num_nextn_predict_layers is 2"}},
           {"/max_position_embeddings", "0", {"max_position_embeddings"}},
           {"/swiglu_limit", "0", {"swiglu_limit", "above 0"}},
           {"/rms_norm_eps", "0", {"rms_norm_eps", "above 0"}},
           {"/rope_theta", "1", {"rope_theta", "above 1"}},
           {"/compress_rope_theta", "0", {"rope_theta", "above 1"}},
           {"/rope_scaling/factor", "0.5", {"rope_scaling", "at least 1"}},
           {"/rope_scaling/beta_fast", "0", {"rope_scaling"}},
           {"@/layer_types", "[\"sliding_attention\"]", {"layer_types", "num_hidden_layers = 43"}},
           {"@/mlp_layer_types", "[\"moe\"]", {"mlp_layer_types", "num_hidden_layers = 43"}},
           {"@/compress_rates/heavily_compressed_attention", "0", {"heavily_compressed_attention is 0"}},
           {"/initializer_range", "-0.02", {"initializer_range", "at least 0"}},
           {"/eos_token_id", "129280", {"eos_token_id is 129280", "129279"}},
           {"/bos_token_id", "-1", {"bos_token_id is -1"}},
       }) {
    expect_refused(bad);
  }
}

TEST(Config, TheTypeOfCompressorNormsIsKeptAndLeftOpenWhereNothingSaysIt) {
  Json json = published();
  EXPECT_FALSE(parse(json).compressor_norm_f32.has_value());
  EXPECT_FALSE(parse(json).to_json().contains("compressor_norm_dtype"));
  for (const char* dtype : {"float32", "bfloat16"}) {
    json["compressor_norm_dtype"] = dtype;
    EXPECT_EQ(parse(json).to_json().at("compressor_norm_dtype"), dtype);
  }
  json["compressor_norm_dtype"] = "float16";
  expect_error(base::Code::invalid_argument, {"compressor_norm_dtype", "float16", "bfloat16"}, [&] { parse(json); });
}

TEST(Config, AMissingScheduleIsRefused) {
  Json json = published();
  json.erase("compress_ratios");
  expect_error(base::Code::invalid_argument, {"layer_types", "compress_ratios"}, [&] { parse(json); });
}

TEST(Config, WhatIsNoObjectIsRefused) {
  expect_error(base::Code::corruption, {"config.json", "object"}, [] { parse(Json::array()); });
}

TEST(Config, ResumingAlignsToTheRatiosInUse) {
  Config config = parse(published());
  EXPECT_EQ(config.block_alignment(), 128);
  config.hca_ratio = 6;
  EXPECT_EQ(config.block_alignment(), 12);
  config.layer_types.assign(43, LayerKind::window);
  EXPECT_EQ(config.block_alignment(), 1);
}

}  // namespace
}  // namespace test
