// Reading, checking and writing config.json.
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace model {
namespace {
using base::Code;
using base::fail;
using base::Json;

constexpr LayerKind kKinds[] = {LayerKind::window, LayerKind::csa, LayerKind::hca};

// Typed access to the fields of one JSON object, with messages that name file and field.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail(Code::corruption, "{}: should hold a JSON object", where_);
  }
  const Json* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  void read(const char* key, int64_t& value) const {
    const Json* at = find(key);
    if (at == nullptr) return;
    if (!at->is_number_integer() || (at->is_number_unsigned() && at->get<uint64_t>() > INT64_MAX))
      wrong(key, *at, "an integer");
    value = at->get<int64_t>();
  }
  void read(const char* key, double& value) const {
    const Json* at = find(key);
    if (at == nullptr) return;
    if (!at->is_number()) wrong(key, *at, "a number");
    value = at->get<double>();
  }
  void read(const char* key, bool& value) const {
    const Json* at = find(key);
    if (at == nullptr) return;
    if (!at->is_boolean()) wrong(key, *at, "true or false");
    value = at->get<bool>();
  }
  void read(const char* key, std::string& value) const {
    const Json* at = find(key);
    if (at == nullptr) return;
    if (!at->is_string()) wrong(key, *at, "a text");
    value = at->get<std::string>();
  }
  // A field that the model fixes: absent, or this value.
  template <class T>
  void only(const char* key, const T& value) const {
    const Json* at = find(key);
    if (at != nullptr && *at != Json(value)) wrong(key, *at, Json(value).dump() + ", the only value of DeepSeek-V4");
  }
  const std::string& where() const { return where_; }
  [[noreturn]] void wrong(const char* key, const Json& got, const std::string& wanted) const {
    fail(Code::invalid_argument, "{}: {} is {}, it should be {}", where_, key, base::to_line(got), wanted);
  }

 private:
  const Json& json_;
  std::string where_;
};

void read_norm_dtype(const Reader& reader, Config& config) {
  std::string dtype;
  reader.read("compressor_norm_dtype", dtype);
  if (dtype.empty()) return;
  if (dtype != "float32" && dtype != "bfloat16")
    reader.wrong("compressor_norm_dtype", Json(dtype), "\"float32\" or \"bfloat16\"");
  config.compressor_norm_f32 = dtype == "float32";
}

LayerKind parse_kind(const Reader& reader, const Json& value) {
  for (const LayerKind kind : kKinds) {
    if (value == to_string(kind)) return kind;
  }
  reader.wrong("layer_types", value,
               "a list of sliding_attention, compressed_sparse_attention, heavily_compressed_attention");
}

// Published form: one ratio per layer, the last entries belong to the MTP blocks.
void read_compress_ratios(const Reader& reader, const Json& ratios, Config& config) {
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  if (!ratios.is_array() || ratios.size() < layers) {
    reader.wrong("compress_ratios", ratios, fmt::format("a list of at least num_hidden_layers = {} integers", layers));
  }
  std::optional<int64_t> hca;
  for (size_t i = 0; i < ratios.size(); ++i) {
    if (!ratios[i].is_number_integer()) reader.wrong("compress_ratios", ratios, "a list of integers");
    const auto ratio = ratios[i].get<int64_t>();
    if (i >= layers) {
      if (ratio != 0)
        reader.wrong("compress_ratios", ratios, "0 for the MTP block (the entries after num_hidden_layers)");
      continue;
    }
    config.layer_types.push_back(ratio == 0 ? LayerKind::window : ratio == 4 ? LayerKind::csa : LayerKind::hca);
    if (ratio == 0 || ratio == 4) continue;
    if (hca && *hca != ratio) reader.wrong("compress_ratios", ratios, "0, 4 and one other ratio");
    hca = ratio;
  }
  config.csa_ratio = 4;
  config.hca_ratio = hca.value_or(128);
}

void read_layers(const Reader& reader, Config& config) {
  config.layer_types.clear();
  if (const Json* types = reader.find("layer_types")) {
    if (!types->is_array()) reader.wrong("layer_types", *types, "a list");
    for (const Json& type : *types) config.layer_types.push_back(parse_kind(reader, type));
    if (const Json* rates = reader.find("compress_rates")) {
      const Reader rate(*rates, reader.where() + ": compress_rates");
      rate.read("compressed_sparse_attention", config.csa_ratio);
      rate.read("heavily_compressed_attention", config.hca_ratio);
    }
    reader.read("compress_rate_csa", config.csa_ratio);
    reader.read("compress_rate_hca", config.hca_ratio);
  } else if (const Json* ratios = reader.find("compress_ratios")) {
    read_compress_ratios(reader, *ratios, config);
  } else {
    fail(Code::invalid_argument, "{}: neither layer_types nor compress_ratios says what each layer attends to",
         reader.where());
  }
  config.hash_layers.clear();
  if (const Json* types = reader.find("mlp_layer_types")) {
    if (!types->is_array()) reader.wrong("mlp_layer_types", *types, "a list");
    for (const Json& type : *types) {
      if (type != "hash_moe" && type != "moe") reader.wrong("mlp_layer_types", type, "\"hash_moe\" or \"moe\"");
      config.hash_layers.push_back(type == "hash_moe");
    }
  } else {
    int64_t num_hash_layers = 3;
    reader.read("num_hash_layers", num_hash_layers);
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) config.hash_layers.push_back(i < num_hash_layers);
  }
}

void read_yarn(const Reader& reader, Config& config) {
  std::string type = "default";
  reader.read("type", type);
  reader.read("rope_type", type);
  if (type == "default") {
    config.rope_scaling.reset();
    return;
  }
  if (type != "yarn") reader.wrong("rope_type", Json(type), "\"yarn\" or \"default\"");
  RopeScaling scaling;
  reader.read("factor", scaling.factor);
  reader.read("original_max_position_embeddings", scaling.original_max_position_embeddings);
  reader.read("beta_fast", scaling.beta_fast);
  reader.read("beta_slow", scaling.beta_slow);
  reader.only("attention_factor", 1.0);
  config.rope_scaling = scaling;
}

void read_rope(const Reader& reader, Config& config) {
  reader.read("rope_theta", config.rope_theta);
  reader.read("compress_rope_theta", config.compress_rope_theta);
  double factor = 64.0 / 512;
  reader.read("partial_rotary_factor", factor);
  config.rope_scaling.reset();
  if (const Json* parameters = reader.find("rope_parameters")) {
    const Reader both(*parameters, reader.where() + ": rope_parameters");
    if (const Json* main = both.find("main")) {
      const Reader part(*main, both.where() + ".main");
      part.read("rope_theta", config.rope_theta);
      part.read("partial_rotary_factor", factor);
    }
    if (const Json* compress = both.find("compress")) {
      const Reader part(*compress, both.where() + ".compress");
      part.read("rope_theta", config.compress_rope_theta);
      read_yarn(part, config);
    }
  } else if (const Json* scaling = reader.find("rope_scaling")) {
    read_yarn(Reader(*scaling, reader.where() + ": rope_scaling"), config);
  }
  config.qk_rope_head_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * factor);
  reader.read("qk_rope_head_dim", config.qk_rope_head_dim);
}

}  // namespace

std::string to_string(LayerKind kind) {
  switch (kind) {
    case LayerKind::window:
      return "sliding_attention";
    case LayerKind::csa:
      return "compressed_sparse_attention";
    case LayerKind::hca:
      return "heavily_compressed_attention";
  }
  return {};
}

int64_t Config::compress_ratio(int64_t layer) const {
  if (layer >= num_hidden_layers) return 0;
  switch (layer_types[static_cast<size_t>(layer)]) {
    case LayerKind::window:
      return 0;
    case LayerKind::csa:
      return csa_ratio;
    case LayerKind::hca:
      return hca_ratio;
  }
  return 0;
}

int64_t Config::block_alignment() const {
  int64_t alignment = 1;
  for (int64_t i = 0; i < num_hidden_layers; ++i)
    alignment = std::lcm(alignment, std::max<int64_t>(1, compress_ratio(i)));
  return alignment;
}

Config Config::from_json(const Json& json, const std::string& where) {
  const Reader reader(json, where);
  reader.only("model_type", "deepseek_v4");
  reader.only("num_key_value_heads", 1);
  reader.only("n_shared_experts", 1);
  reader.only("attention_bias", false);
  reader.only("mlp_bias", false);
  reader.only("hidden_act", "silu");
  reader.only("tie_word_embeddings", false);
  Config config;
  reader.read("vocab_size", config.vocab_size);
  reader.read("hidden_size", config.hidden_size);
  reader.read("num_hidden_layers", config.num_hidden_layers);
  reader.read("num_attention_heads", config.num_attention_heads);
  reader.read("head_dim", config.head_dim);
  reader.read("q_lora_rank", config.q_lora_rank);
  reader.read("o_groups", config.o_groups);
  reader.read("o_lora_rank", config.o_lora_rank);
  reader.read("sliding_window", config.sliding_window);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read("index_n_heads", config.index_n_heads);
  reader.read("index_head_dim", config.index_head_dim);
  reader.read("index_topk", config.index_topk);
  reader.read("hc_mult", config.hc_mult);
  reader.read("hc_sinkhorn_iters", config.hc_sinkhorn_iters);
  reader.read("hc_eps", config.hc_eps);
  reader.read("n_routed_experts", config.n_routed_experts);
  reader.read("num_local_experts", config.n_routed_experts);
  reader.read("num_experts_per_tok", config.num_experts_per_tok);
  reader.read("moe_intermediate_size", config.moe_intermediate_size);
  reader.read("scoring_func", config.scoring_func);
  reader.read("norm_topk_prob", config.norm_topk_prob);
  reader.read("routed_scaling_factor", config.routed_scaling_factor);
  reader.read("swiglu_limit", config.swiglu_limit);
  reader.read("clamp_shared_expert", config.clamp_shared_expert);
  reader.read("rms_norm_eps", config.rms_norm_eps);
  config.num_nextn_predict_layers = 0;
  reader.read("num_nextn_predict_layers", config.num_nextn_predict_layers);
  reader.read("initializer_range", config.initializer_range);
  reader.read("bos_token_id", config.bos_token_id);
  reader.read("eos_token_id", config.eos_token_id);
  reader.read("expert_dtype", config.expert_dtype);
  read_norm_dtype(reader, config);
  if (config.num_hidden_layers < 1 || config.num_hidden_layers > 1000) {
    reader.wrong("num_hidden_layers", Json(config.num_hidden_layers), "between 1 and 1000");
  }
  read_layers(reader, config);
  read_rope(reader, config);
  config.check(where);
  return config;
}

Config Config::load(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  return from_json(base::read_json(path, 1 << 24), path.string());
}

void Config::check(const std::string& where) const {
  const auto require = [&](bool holds, const char* field, const std::string& wanted) {
    if (!holds) fail(Code::invalid_argument, "{}: {} should be {}", where, field, wanted);
  };
  const auto in = [&](const char* field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
      fail(Code::invalid_argument, "{}: {} is {}, it should be between {} and {}", where, field, value, low, high);
    }
  };
  constexpr int64_t kBig = int64_t{1} << 24;
  in("vocab_size", vocab_size, 2, kBig);
  in("hidden_size", hidden_size, 1, kBig);
  in("num_attention_heads", num_attention_heads, 1, 65536);
  in("head_dim", head_dim, 2, 65536);
  in("index_head_dim", index_head_dim, 2, 65536);
  in("qk_rope_head_dim", qk_rope_head_dim, 2, std::min(head_dim, index_head_dim));
  require(qk_rope_head_dim % 2 == 0, "qk_rope_head_dim", "even");
  in("q_lora_rank", q_lora_rank, 1, kBig);
  in("o_groups", o_groups, 1, num_attention_heads);
  require(num_attention_heads % o_groups == 0, "o_groups",
          fmt::format("a divisor of num_attention_heads = {}", num_attention_heads));
  in("o_lora_rank", o_lora_rank, 1, kBig);
  in("sliding_window", sliding_window, 1, kBig);
  const auto layers = static_cast<size_t>(num_hidden_layers);
  require(layer_types.size() == layers, "layer_types", fmt::format("a list of num_hidden_layers = {} kinds", layers));
  require(hash_layers.size() == layers, "mlp_layer_types",
          fmt::format("a list of num_hidden_layers = {} kinds", layers));
  in("compress_rates.compressed_sparse_attention", csa_ratio, 1, 65536);
  in("compress_rates.heavily_compressed_attention", hca_ratio, 1, 65536);
  in("index_n_heads", index_n_heads, 1, 65536);
  in("index_topk", index_topk, 1, kBig);
  in("hc_mult", hc_mult, 1, 64);
  in("hc_sinkhorn_iters", hc_sinkhorn_iters, 1, 1000);
  in("n_routed_experts", n_routed_experts, 1, 65536);
  in("num_experts_per_tok", num_experts_per_tok, 1, n_routed_experts);
  in("moe_intermediate_size", moe_intermediate_size, 1, kBig);
  in("num_nextn_predict_layers", num_nextn_predict_layers, 0, 1);
  in("max_position_embeddings", max_position_embeddings, 1, int64_t{1} << 40);
  require(scoring_func == "sqrtsoftplus" || scoring_func == "sigmoid" || scoring_func == "softmax", "scoring_func",
          "\"sqrtsoftplus\", \"sigmoid\" or \"softmax\"");
  require(expert_dtype == "fp4" || expert_dtype == "fp8", "expert_dtype", "\"fp4\" or \"fp8\"");
  in("bos_token_id", bos_token_id, 0, vocab_size - 1);
  in("eos_token_id", eos_token_id, 0, vocab_size - 1);
  require(initializer_range >= 0, "initializer_range", "at least 0");
  require(swiglu_limit > 0, "swiglu_limit", "above 0");
  require(rms_norm_eps > 0 && hc_eps >= 0, "rms_norm_eps", "above 0 (and hc_eps at least 0)");
  require(rope_theta > 1 && compress_rope_theta > 1, "rope_theta", "above 1");
  if (rope_scaling) {
    require(rope_scaling->factor >= 1 && rope_scaling->original_max_position_embeddings > 0 &&
                rope_scaling->beta_fast > 0 && rope_scaling->beta_slow > 0,
            "rope_scaling", "positive, with a factor of at least 1");
  }
}

namespace {

// The published spelling of the layers, where it can say them: hash layers come first, ratio 4 means CSA and no other
// layer.
void write_published_layers(const Config& config, Json& json) {
  const auto first_scored = std::find(config.hash_layers.begin(), config.hash_layers.end(), false);
  if (std::find(first_scored, config.hash_layers.end(), true) == config.hash_layers.end()) {
    json["num_hash_layers"] = first_scored - config.hash_layers.begin();
  }
  if (config.csa_ratio != 4 || config.hca_ratio == 4) return;
  Json& ratios = json["compress_ratios"] = Json::array();
  for (int64_t i = 0; i < config.num_hidden_layers + config.num_nextn_predict_layers; ++i)
    ratios.push_back(config.compress_ratio(i));
}

}  // namespace

Json Config::to_json() const {
  Json types = Json::array(), mlp_types = Json::array();
  for (const LayerKind kind : layer_types) types.push_back(to_string(kind));
  for (const bool hash : hash_layers) mlp_types.push_back(hash ? "hash_moe" : "moe");
  const double factor = static_cast<double>(qk_rope_head_dim) / static_cast<double>(head_dim);
  Json compress = {{"rope_type", rope_scaling ? "yarn" : "default"},
                   {"rope_theta", compress_rope_theta},
                   {"partial_rotary_factor", factor}};
  if (rope_scaling) {
    compress.update({{"factor", rope_scaling->factor},
                     {"original_max_position_embeddings", rope_scaling->original_max_position_embeddings},
                     {"beta_fast", rope_scaling->beta_fast},
                     {"beta_slow", rope_scaling->beta_slow},
                     {"attention_factor", 1.0}});
  }
  Json json = {
      {"architectures", Json::array({"DeepseekV4ForCausalLM"})},
      {"model_type", "deepseek_v4"},
      {"vocab_size", vocab_size},
      {"hidden_size", hidden_size},
      {"num_hidden_layers", num_hidden_layers},
      {"num_attention_heads", num_attention_heads},
      {"num_key_value_heads", 1},
      {"head_dim", head_dim},
      {"qk_rope_head_dim", qk_rope_head_dim},
      {"partial_rotary_factor", factor},
      {"q_lora_rank", q_lora_rank},
      {"o_groups", o_groups},
      {"o_lora_rank", o_lora_rank},
      {"sliding_window", sliding_window},
      {"layer_types", types},
      {"compress_rates", {{"compressed_sparse_attention", csa_ratio}, {"heavily_compressed_attention", hca_ratio}}},
      {"mlp_layer_types", mlp_types},
      {"rope_theta", rope_theta},
      {"compress_rope_theta", compress_rope_theta},
      {"rope_parameters",
       {{"main", {{"rope_type", "default"}, {"rope_theta", rope_theta}, {"partial_rotary_factor", factor}}},
        {"compress", compress}}},
      {"max_position_embeddings", max_position_embeddings},
      {"index_n_heads", index_n_heads},
      {"index_head_dim", index_head_dim},
      {"index_topk", index_topk},
      {"hc_mult", hc_mult},
      {"hc_sinkhorn_iters", hc_sinkhorn_iters},
      {"hc_eps", hc_eps},
      {"n_routed_experts", n_routed_experts},
      {"n_shared_experts", 1},
      {"num_experts_per_tok", num_experts_per_tok},
      {"moe_intermediate_size", moe_intermediate_size},
      {"scoring_func", scoring_func},
      {"norm_topk_prob", norm_topk_prob},
      {"routed_scaling_factor", routed_scaling_factor},
      {"swiglu_limit", swiglu_limit},
      {"clamp_shared_expert", clamp_shared_expert},
      {"rms_norm_eps", rms_norm_eps},
      {"num_nextn_predict_layers", num_nextn_predict_layers},
      {"initializer_range", initializer_range},
      {"bos_token_id", bos_token_id},
      {"eos_token_id", eos_token_id},
      {"expert_dtype", expert_dtype},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"tie_word_embeddings", false}};
  if (compressor_norm_f32) json["compressor_norm_dtype"] = *compressor_norm_f32 ? "float32" : "bfloat16";
  write_published_layers(*this, json);
  if (rope_scaling) {
    json["rope_scaling"] = {{"type", "yarn"},
                            {"factor", rope_scaling->factor},
                            {"original_max_position_embeddings", rope_scaling->original_max_position_embeddings},
                            {"beta_fast", rope_scaling->beta_fast},
                            {"beta_slow", rope_scaling->beta_slow}};
  }
  return json;
}

}  // namespace model
