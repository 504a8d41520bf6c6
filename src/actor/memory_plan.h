// How much memory a training step needs, from the config and the settings alone, so that a run that cannot fit is
// refused before its first step. Weights and optimizer state are exact; activations are an estimate from the tensors
// that the forward pass keeps for backward. Runs with full microbatches held 0.96 to 1.07 times the plan
// (docs/performance.md).
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
