// The configuration of a DeepSeek-V4 model, spelled as in its config.json.
//
// Reads the published form (compress_ratios, rope_scaling, num_hash_layers, qk_rope_head_dim) and transformers' form
// (layer_types, compress_rates, mlp_layer_types, rope_parameters, partial_rotary_factor); writes both spellings, so
// that either reader takes it. Source: spec 1.1 to 1.3.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace model {

// What a layer attends to beside its sliding window.
enum class LayerKind { window, csa, hca };  // nothing | top-k of overlapping blocks (indexer) | all blocks

// Frequencies of rotary embedding; YaRN applies to layers with a compressor only (spec 4.4).
struct RopeScaling {
  double factor = 16;
  int64_t original_max_position_embeddings = 65536;
  double beta_fast = 32, beta_slow = 1;
};

struct Config {
  int64_t vocab_size = 129280;
  int64_t hidden_size = 4096;
  int64_t num_hidden_layers = 43;
  int64_t num_attention_heads = 64;
  int64_t head_dim = 512;
  int64_t qk_rope_head_dim = 64;  // the last dims of head_dim and of index_head_dim
  int64_t q_lora_rank = 1024;
  int64_t o_groups = 8;
  int64_t o_lora_rank = 1024;
  int64_t sliding_window = 128;  // counts the token itself
  std::vector<LayerKind> layer_types;
  int64_t csa_ratio = 4, hca_ratio = 128;  // tokens per compressed entry
  double compress_rope_theta = 160000, rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling = RopeScaling{};
  int64_t max_position_embeddings = 1048576;
  int64_t index_n_heads = 64, index_head_dim = 128, index_topk = 512;
  int64_t hc_mult = 4, hc_sinkhorn_iters = 20;
  double hc_eps = 1e-6;
  int64_t n_routed_experts = 256, num_experts_per_tok = 6, moe_intermediate_size = 2048;
  std::vector<bool> hash_layers;  // per layer: experts chosen by token id
  std::string scoring_func = "sqrtsoftplus";
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1.5;
  double swiglu_limit = 10;
  bool clamp_shared_expert = true;  // decisions 10; false for parity with trainers that do not clamp it
  double rms_norm_eps = 1e-6;
  int64_t num_nextn_predict_layers = 1;
  double initializer_range = 0.02;
  int64_t bos_token_id = 0, eos_token_id = 1;
  std::string expert_dtype = "fp4";  // of the published layout: "fp4" or "fp8" (Base)
  // The compressors' norm weights stay f32 when they are published, for a model that stores them so (decisions 17).
  // Ours, written as compressor_norm_dtype; where config.json says nothing, the loader looks at the stored tensors.
  // Nothing at all: bf16.
  std::optional<bool> compressor_norm_f32;

  // Tokens per compressed entry of a layer; 0 for a window layer. layer == num_hidden_layers is the MTP block, always
  // 0.
  int64_t compress_ratio(int64_t layer) const;
  // Least common multiple of the ratios in use (1 without compressors): where a cached prefix can be resumed.
  int64_t block_alignment() const;

  // Errors: invalid_argument naming `where`, the field, its value and what it should be.
  static Config from_json(const base::Json& json, const std::string& where);
  static Config load(const std::filesystem::path& folder);  // folder/config.json
  base::Json to_json() const;
  void check(const std::string& where) const;  // every relation between fields that the model needs
};

std::string to_string(
    LayerKind kind);  // "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"

}  // namespace model
