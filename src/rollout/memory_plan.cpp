// Sums over the visitor, and an upper estimate of one pass.
#include "rollout/memory_plan.h"

#include <algorithm>

#include "model/cache.h"
#include "model/weights.h"
#include "tensor/formats/block_scale.h"

namespace rollout {
namespace {

constexpr int64_t kFloatBytes = 4;

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

int64_t weight_bytes(const model::Config& config, const model::Profile& profile) {
  int64_t bytes = 0;
  const model::Weights described = model::Weights::describe(config);
  described.visit([&](const model::TensorInfo& info, const tensor::Tensor&) {
    const int64_t copies = std::max<int64_t>(info.stack, 1);
    const int64_t value_bytes = info.stored_as == model::StoredAs::i64 ? 8 : kFloatBytes;
    bytes += copies * product(info.shape) * value_bytes;
    const auto format = model::run_format(info, profile);
    if (!format) return;
    bytes += copies * product(tensor::code_shape(info.shape, *format));
    bytes += copies * product(tensor::scale_shape(info.shape, *format));
  });
  return bytes;
}

// A pass with num_slots single tokens and the rest of the budget in prompts, whose queries share keys in blocks of
// about 16.
int64_t pass_bytes(const model::Config& c, const EngineSettings& settings) {
  constexpr int64_t kBlockLen = 16;
  constexpr int64_t kFixedBytes = int64_t{32} << 20;  // work space of the matrix library
  int64_t entries = 0, index_entries = 0;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (c.compress_ratio(layer) == 0) continue;
    entries = std::max(entries, settings.max_context / c.compress_ratio(layer));
    if (c.layer_types[static_cast<size_t>(layer)] == model::LayerKind::csa)
      index_entries = settings.max_context / c.csa_ratio;
  }
  const int64_t tokens = settings.max_batch_tokens;
  const int64_t blocks = settings.num_slots + tokens / kBlockLen;
  const int64_t keys = kBlockLen + c.sliding_window + entries;
  const int64_t attention = blocks * (keys * c.head_dim + index_entries * c.index_head_dim) +
                            2 * tokens * (c.num_attention_heads * keys + c.index_n_heads * index_entries) +
                            3 * tokens * c.num_attention_heads * c.head_dim;
  const int64_t experts = tokens * c.num_experts_per_tok * (3 * c.moe_intermediate_size + 3 * c.hidden_size);
  const int64_t streams = 8 * tokens * c.hc_mult * c.hidden_size;
  const int64_t logits = 2 * std::min(kLogitRows, tokens) * c.vocab_size;
  return kFixedBytes + kFloatBytes * (streams + std::max({attention, experts, logits}));
}

}  // namespace

MemoryPlan plan_memory(const model::Config& config, const EngineSettings& settings) {
  const int64_t weights = weight_bytes(config, model::Profile::parse(settings.profile));
  return {.weights_bytes = weights,
          .update_bytes = weights,
          .cache_bytes = settings.num_slots * model::Cache::bytes_per_slot(config, settings.max_context),
          .pass_bytes = pass_bytes(config, settings)};
}

}  // namespace rollout
