// Files that a small run reads: a tokenizer with a token for each character, a config, rows of data.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"

namespace controller {
namespace fs = std::filesystem;
using base::Json;

// One token for each special text and each character, ids in that order.
inline void write_tokenizer(const fs::path& folder, const std::vector<std::string>& special,
                            const std::string& characters) {
  Json vocab = Json::object(), added = Json::array();
  int id = 0;
  for (const std::string& text : special) {
    added.push_back({{"id", id},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    vocab[text] = id++;
  }
  for (const char c : characters) vocab[std::string(1, c)] = id++;
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
  const Json file = {
      {"version", "1.0"},          {"added_tokens", added}, {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
      {"post_processor", nullptr}, {"decoder", byte_level}, {"model", model}};
  base::write_file_atomic(folder / "tokenizer.json", file.dump(1));
  const Json names = {{"bos_token", "<bos>"}, {"eos_token", "<eos>"}, {"pad_token", "<pad>"}};
  base::write_file_atomic(folder / "tokenizer_config.json", names.dump(1));
}

// Every mechanism of the architecture, small; layers and widths as a test wants them.
inline Json small_config(int64_t vocab, int64_t hidden, const std::vector<std::string>& layers) {
  Json mlp = Json::array();
  for (size_t i = 0; i < layers.size(); ++i) mlp.push_back(i == 0 ? "hash_moe" : "moe");
  return {{"model_type", "deepseek_v4"},
          {"vocab_size", vocab},
          {"hidden_size", hidden},
          {"num_hidden_layers", layers.size()},
          {"layer_types", layers},
          {"mlp_layer_types", mlp},
          {"compress_rates", {{"compressed_sparse_attention", 4}, {"heavily_compressed_attention", 8}}},
          {"num_attention_heads", 4},
          {"head_dim", 16},
          {"qk_rope_head_dim", 8},
          {"q_lora_rank", 16},
          {"o_groups", 2},
          {"o_lora_rank", 8},
          {"sliding_window", 16},
          {"max_position_embeddings", 256},
          {"index_n_heads", 4},
          {"index_head_dim", 16},
          {"index_topk", 4},
          {"hc_mult", 2},
          {"hc_sinkhorn_iters", 5},
          {"n_routed_experts", 4},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 16},
          {"routed_scaling_factor", 1.5},
          {"swiglu_limit", 10.0},
          {"num_nextn_predict_layers", 0},
          {"initializer_range", 0.08},
          {"rope_theta", 10000.0},
          {"compress_rope_theta", 10000.0},
          {"bos_token_id", 1},
          {"eos_token_id", 2}};
}

inline void write_rows(const fs::path& path, const std::vector<Json>& rows) {
  std::string text;
  for (const Json& row : rows) text += base::to_line(row) + "\n";
  base::write_file_atomic(path, text);
}

}  // namespace controller
