// Sums over the visitor, and an upper estimate of one pass.
#include "rollout/memory_plan.h"

#include <algorithm>

#include "model/cache.h"
#include "model/run_weights.h"

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
  model::RunWeights::describe(config).visit(
      {[&](const model::TensorInfo& info, tensor::Tensor&) {
         bytes += product(info.shape) * (info.stored_as == model::StoredAs::i64 ? 8 : kFloatBytes);
       },
       [&](const model::TensorInfo& info, model::Matrix&) { bytes += model::packed_bytes(info, profile); }});
  return bytes;
}

// The results of a layer's kernels, kept for the next pass, for a pass of num_slots single tokens and the rest of the
// budget in prompts; logits beside them.
int64_t pass_bytes(const model::Config& c, const EngineSettings& settings) {
  int64_t channels = 0;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const int64_t ratio = c.compress_ratio(layer);
    if (ratio == 0) continue;
    const bool csa = c.layer_types[static_cast<size_t>(layer)] == model::LayerKind::csa;
    const int64_t own =
        csa ? 4 * (c.head_dim + c.index_head_dim) + 3 * c.index_n_heads * c.index_head_dim : 2 * c.head_dim;
    channels = std::max(channels, own);
  }
  const int64_t tokens = settings.max_batch_tokens;
  const int64_t streams = 3 * c.hc_mult * c.hidden_size, inputs = 8 * c.hidden_size;
  const int64_t attention =
      3 * c.q_lora_rank + 4 * c.num_attention_heads * c.head_dim + 3 * c.head_dim + 2 * c.o_groups * c.o_lora_rank;
  const int64_t experts = c.num_experts_per_tok * (3 * c.moe_intermediate_size + c.hidden_size) +
                          3 * c.moe_intermediate_size + 2 * c.n_routed_experts;
  const int64_t logits = std::min(kLogitRows, tokens) * c.vocab_size;
  return kFloatBytes * (tokens * (streams + inputs + attention + experts + channels) + logits);
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
