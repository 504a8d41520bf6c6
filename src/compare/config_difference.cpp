// The table of fields.
#include "compare/config_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace compare {
namespace {

using model::Config;

std::string text_of(int64_t value) { return fmt::format("{}", value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(const std::string& value) { return value; }
std::string text_of(const std::optional<model::RopeScaling>& value) {
  if (!value) return "none";
  return fmt::format("YaRN factor {}, original {}, beta {} to {}", value->factor,
                     value->original_max_position_embeddings, value->beta_fast, value->beta_slow);
}
std::string text_of(const std::vector<model::LayerKind>& kinds) {
  std::vector<std::string> names;
  for (const model::LayerKind kind : kinds) names.push_back(model::to_string(kind));
  return fmt::format("[{}]", fmt::join(names, ", "));
}
std::string text_of(const std::vector<bool>& layers) {
  std::vector<size_t> set;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i]) set.push_back(i);
  }
  return fmt::format("layers [{}] of {}", fmt::join(set, ", "), layers.size());
}

enum class Kind { plain, sizes };

template <class T>
ConfigField field(const char* name, T Config::*member, Kind kind = Kind::plain) {
  return {name, [member](const Config& c) { return text_of(c.*member); },
          [member](Config& to, const Config& from) { to.*member = from.*member; }, kind == Kind::sizes};
}

}  // namespace

const std::vector<ConfigField>& config_fields() {
  static const std::vector<ConfigField> kFields = {
      field("vocab_size", &Config::vocab_size, Kind::sizes),
      field("hidden_size", &Config::hidden_size, Kind::sizes),
      field("num_hidden_layers", &Config::num_hidden_layers, Kind::sizes),
      field("num_attention_heads", &Config::num_attention_heads, Kind::sizes),
      field("head_dim", &Config::head_dim, Kind::sizes),
      field("qk_rope_head_dim", &Config::qk_rope_head_dim),
      field("q_lora_rank", &Config::q_lora_rank, Kind::sizes),
      field("o_groups", &Config::o_groups, Kind::sizes),
      field("o_lora_rank", &Config::o_lora_rank, Kind::sizes),
      field("sliding_window", &Config::sliding_window),
      field("layer_types", &Config::layer_types, Kind::sizes),
      field("csa_ratio", &Config::csa_ratio, Kind::sizes),
      field("hca_ratio", &Config::hca_ratio, Kind::sizes),
      field("compress_rope_theta", &Config::compress_rope_theta),
      field("rope_theta", &Config::rope_theta),
      field("rope_scaling", &Config::rope_scaling),
      field("index_n_heads", &Config::index_n_heads, Kind::sizes),
      field("index_head_dim", &Config::index_head_dim, Kind::sizes),
      field("index_topk", &Config::index_topk),
      field("hc_mult", &Config::hc_mult, Kind::sizes),
      field("hc_sinkhorn_iters", &Config::hc_sinkhorn_iters),
      field("hc_eps", &Config::hc_eps),
      field("n_routed_experts", &Config::n_routed_experts, Kind::sizes),
      field("num_experts_per_tok", &Config::num_experts_per_tok),
      field("moe_intermediate_size", &Config::moe_intermediate_size, Kind::sizes),
      field("hash_layers", &Config::hash_layers, Kind::sizes),
      field("scoring_func", &Config::scoring_func),
      field("norm_topk_prob", &Config::norm_topk_prob),
      field("routed_scaling_factor", &Config::routed_scaling_factor),
      field("swiglu_limit", &Config::swiglu_limit),
      field("clamp_shared_expert", &Config::clamp_shared_expert),
      field("rms_norm_eps", &Config::rms_norm_eps),
  };
  return kFields;
}

std::vector<ConfigDifference> config_differences(const Config& a, const Config& b) {
  std::vector<ConfigDifference> differences;
  for (const ConfigField& one : config_fields()) {
    const std::string left = one.text(a), right = one.text(b);
    if (left != right) differences.push_back({&one, left, right});
  }
  return differences;
}

}  // namespace compare
