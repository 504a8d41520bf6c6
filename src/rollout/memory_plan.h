// What a rollout engine needs in memory, from configuration and settings alone.
#pragma once
#include <cstdint>

#include "model/config.h"
#include "rollout/settings.h"

namespace rollout {

// Logits of at most this many rows exist at once.
constexpr int64_t kLogitRows = 256;

// Bytes. The first three are exact; pass_bytes is an estimate of the largest temporary tensors of a full pass.
struct MemoryPlan {
  int64_t weights_bytes = 0;  // packed in run layout
  int64_t update_bytes = 0;   // the staged copy while new weights arrive
  int64_t cache_bytes = 0;    // num_slots caches of max_context tokens
  int64_t pass_bytes = 0;     // results of kernels, logits

  int64_t total() const { return weights_bytes + update_bytes + cache_bytes + pass_bytes; }
};

// Error{invalid_argument} for a profile that does not exist.
MemoryPlan plan_memory(const model::Config& config, const EngineSettings& settings);

}  // namespace rollout
