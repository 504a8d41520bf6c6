// How much memory a training step needs, from the config and the settings alone, so that a run that cannot fit is
// refused before its first step. Weights and optimizer state are exact; activations are an estimate from the tensors
// that the forward pass keeps for backward. Growth of a process in its first step was 1.0 to 1.35 times the plan (d
// 128, 4 layers, 2048 to 8192 tokens, sequences of 128 to 2048, with and without recompute), so leave a margin of a
// third.
#pragma once
#include <cstdint>

#include "actor/settings.h"
#include "model/config.h"

namespace actor {

struct MemoryPlan {
  int64_t masters_bytes = 0;      // f32, all tensors
  int64_t run_weights_bytes = 0;  // what the profile computes with: f32 values and packed panels
  int64_t gradients_bytes = 0;    // f32, tensors that learn
  int64_t moments_bytes = 0;      // two f32 per value that learns
  int64_t reference_bytes = 0;    // a frozen copy; 0 without a reference policy
  int64_t activations_bytes = 0;  // of the largest microbatch; actor.tokens_per_microbatch, actor.recompute
  int64_t logits_bytes = 0;       // of one chunk of rows; actor.head_rows

  int64_t total_bytes() const;
};

// longest: tokens of the longest prompt and answer together; a microbatch holds at least one whole sequence. MTP
// tensors are counted as weights only: they have no loss.
MemoryPlan plan_memory(const model::Config& config, const ActorSettings& settings, int64_t longest);

}  // namespace actor
