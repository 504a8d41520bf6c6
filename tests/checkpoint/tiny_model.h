// A DeepSeek-V4 of a few thousand parameters with every kind of layer and tensor, sizes that are no multiples of a
// block, and no value left at 0 or 1. For tests that move weights and never compute with them.
#pragma once
#include "base/rng.h"
#include "model/weights.h"

namespace test {

inline base::Json tiny_config_json() {
  return {{"model_type", "deepseek_v4"},
          {"vocab_size", 40},
          {"hidden_size", 64},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"head_dim", 40},
          {"qk_rope_head_dim", 8},
          {"q_lora_rank", 48},
          {"o_groups", 2},
          {"o_lora_rank", 72},
          {"sliding_window", 8},
          {"compress_ratios", {0, 4, 16, 4, 0}},
          {"num_hash_layers", 2},
          {"index_n_heads", 3},
          {"index_head_dim", 16},
          {"index_topk", 4},
          {"hc_mult", 4},
          {"n_routed_experts", 5},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 136},
          {"num_nextn_predict_layers", 1},
          {"expert_dtype", "fp4"}};
}

inline model::Config tiny_config() { return model::Config::from_json(tiny_config_json(), "tiny"); }

inline model::Weights tiny_weights(uint64_t seed = 1) {
  model::Weights weights = model::Weights::initialise(tiny_config(), seed);
  weights.visit([&](const model::TensorInfo& info, tensor::Tensor& value) {
    if (info.stored_as == model::StoredAs::i64) return;
    base::Philox random(base::derive_seed(seed + 1, info.name));
    float* const values = value.data_ptr<float>();
    for (int64_t i = 0; i < value.numel(); ++i) values[i] = static_cast<float>(random.next_normal());
  });
  return weights;
}

}  // namespace test
