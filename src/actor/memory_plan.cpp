// The estimate.
#include "actor/memory_plan.h"

#include <algorithm>

#include "model/weights.h"

namespace actor {

namespace {

constexpr int64_t kF32 = 4;
constexpr int64_t kQueryBlock = 64;  // longest block of queries that share their gathered keys (model/layout.h)

// f32 values that one token keeps in one layer for the backward pass: inputs of matrix products and norms, gathered
// keys, attention weights, expert inputs and activations.
int64_t values_per_token(const model::Config& c, int64_t layer, int64_t longest) {
  const int64_t ratio = c.compress_ratio(layer);
  const int64_t block = std::min(kQueryBlock, longest);
  const int64_t keys = c.sliding_window + block - 1 + (ratio > 0 ? longest / ratio : 0);
  const int64_t streams = 2 * c.hc_mult * c.hidden_size + 12 * c.hidden_size;
  const int64_t heads = c.num_attention_heads * c.head_dim;
  const int64_t attention = 3 * c.q_lora_rank + 5 * heads + 2 * c.o_groups * c.o_lora_rank +
                            keys * c.num_attention_heads + keys * c.head_dim / block + (ratio > 0 ? 8 * c.head_dim : 0);
  const int64_t experts =
      c.num_experts_per_tok * (2 * c.hidden_size + 7 * c.moe_intermediate_size) + 7 * c.moe_intermediate_size;
  return streams + attention + experts;
}

int64_t activation_values(const model::Config& c, bool recompute, int64_t tokens, int64_t longest) {
  int64_t all = 0, largest = 0;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const int64_t own = values_per_token(c, layer, longest);
    all += own;
    largest = std::max(largest, own);
  }
  const int64_t kept = recompute ? (c.num_hidden_layers + 1) * c.hc_mult * c.hidden_size + largest : all;
  return tokens * (kept + largest);  // backward of a layer makes about as much again
}

}  // namespace

int64_t MemoryPlan::total_bytes() const {
  return masters_bytes + run_weights_bytes + gradients_bytes + moments_bytes + reference_bytes + activations_bytes +
         logits_bytes;
}

MemoryPlan plan_memory(const model::Config& config, const ActorSettings& settings, int64_t longest) {
  MemoryPlan plan;
  model::Weights::describe(config).visit([&](const model::TensorInfo& info, model::Tensor&) {
    int64_t values = std::max<int64_t>(1, info.stack);
    for (const int64_t size : info.shape) values *= size;
    const int64_t bytes = values * (info.stored_as == model::StoredAs::i64 ? 8 : kF32);
    plan.masters_bytes += bytes;
    plan.run_weights_bytes += bytes;
    if (settings.loss.needs_reference()) plan.reference_bytes += bytes;
    if (!info.learns || info.name.starts_with("mtp.")) return;
    plan.gradients_bytes += values * kF32;
    plan.moments_bytes += 2 * values * kF32;
  });
  const int64_t tokens = std::max(settings.tokens_per_microbatch, longest);
  plan.activations_bytes = kF32 * activation_values(config, settings.recompute, tokens, longest);
  // Backward holds the log-softmax, its exponential and the gradient of a chunk.
  plan.logits_bytes = 3 * kF32 * std::min(settings.head_rows, tokens) * config.vocab_size;
  return plan;
}

}  // namespace actor
