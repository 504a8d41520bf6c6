// The estimate.
#include "actor/memory_plan.h"

#include <algorithm>

#include "model/run_weights.h"

namespace actor {

namespace {

constexpr int64_t kF32 = 4;

// f32 values that one token keeps in one layer for the backward pass: what each node of the graph saves.
int64_t values_per_token(const model::Config& c, int64_t layer) {
  const int64_t ratio = c.compress_ratio(layer);
  const bool csa = ratio > 0 && c.layer_types[static_cast<size_t>(layer)] == model::LayerKind::csa;
  const int64_t streams = 2 * c.hc_mult * c.hidden_size + 10 * c.hidden_size + 4 * (2 + c.hc_mult) * c.hc_mult;
  const int64_t heads = c.num_attention_heads * c.head_dim;
  const int64_t attention = 3 * c.q_lora_rank + 4 * heads + 3 * c.head_dim + 2 * c.o_groups * c.o_lora_rank +
                            (ratio == 0 ? 0
                             : csa      ? 4 * c.head_dim
                                        : 2 * c.head_dim);
  const int64_t experts = c.num_experts_per_tok * (2 * c.moe_intermediate_size + c.hidden_size) +
                          4 * c.moe_intermediate_size + 2 * c.n_routed_experts;
  return streams + attention + experts;
}

int64_t activation_values(const model::Config& c, bool recompute, int64_t tokens) {
  int64_t all = 0, largest = 0;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const int64_t own = values_per_token(c, layer);
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
  const model::Profile profile = settings.precision();
  const bool reference = settings.loss.needs_reference();
  const auto add = [&](const model::TensorInfo& info, int64_t trainable_bytes, int64_t frozen_bytes) {
    int64_t values = std::max<int64_t>(1, info.stack);
    for (const int64_t size : info.shape) values *= size;
    const int64_t bytes = values * (info.stored_as == model::StoredAs::i64 ? 8 : kF32);
    plan.masters_bytes += bytes;
    plan.run_weights_bytes += trainable_bytes > 0 ? trainable_bytes : bytes;
    if (reference) plan.reference_bytes += bytes + (frozen_bytes > 0 ? frozen_bytes : bytes);
    if (!info.learns || info.name.starts_with("mtp.")) return;
    plan.gradients_bytes += values * kF32;
    plan.moments_bytes += 2 * values * kF32;
  };
  model::RunWeights::describe(config).visit({[&](const model::TensorInfo& info, tensor::Tensor&) { add(info, 0, 0); },
                                             [&](const model::TensorInfo& info, model::Matrix&) {
                                               add(info, model::trainable_bytes(info, profile),
                                                   model::packed_bytes(info, profile));
                                             }});
  const int64_t tokens = std::max(settings.tokens_per_microbatch, longest);
  plan.activations_bytes = kF32 * activation_values(config, settings.recompute, tokens);
  plan.logits_bytes = kF32 * std::min(settings.head_rows, tokens) * config.vocab_size;
  return plan;
}

}  // namespace actor
