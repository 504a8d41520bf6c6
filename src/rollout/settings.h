// Settings of a rollout engine.
#pragma once
#include <cstdint>
#include <string>

#include "base/settings.h"

namespace rollout {

struct EngineSettings {
  std::string profile = "fp8";
  int64_t num_slots = 64;
  int64_t max_context = 4096;
  int64_t max_batch_tokens = 4096;
  int64_t prefill_chunk = 512;
  std::string on_update = "retract";
  int64_t seed = 0;

  template <class V>
  void visit(V&& v) {
    v("profile", profile, "precision of weights and activations", base::OneOf{"f32", "bf16", "fp8", "fp8_fp4"});
    v("num_slots", num_slots, "sequences that are generated at the same time; each keeps a cache of max_context tokens",
      base::Range{1, 1 << 16});
    v("max_context", max_context, "tokens of one sequence, prompt and answer together", base::Range{2, 1 << 24});
    v("max_batch_tokens", max_batch_tokens,
      "tokens of one forward pass, decode and prefill together; at least num_slots", base::Range{1, 1 << 20});
    v("prefill_chunk", prefill_chunk, "tokens of one prompt in one forward pass", base::Range{1, 1 << 20});
    v("on_update", on_update,
      "answers in flight when new weights arrive: retract computes their caches again with the new weights and keeps "
      "their "
      "tokens; continue goes on with caches that older weights wrote",
      base::OneOf{"retract", "continue"});
    v("seed", seed, "from which requests without seeds get theirs", base::Range{0});
  }
};

}  // namespace rollout
