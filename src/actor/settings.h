// Settings of the actor: precision, microbatches, loss, optimizer, stop rules. The defaults are a cautious GRPO run.
#pragma once
#include "actor/loss/settings.h"
#include "actor/optimizer/settings.h"
#include "actor/stop_rules.h"
#include "model/profile.h"

namespace actor {

struct ActorSettings {
  std::string profile = "bf16";
  bool simulate_kv = false;
  bool simulate_index = false;
  bool routing_replay = false;
  std::string device = "cpu";
  int64_t tokens_per_microbatch = 8192;
  bool recompute = true;
  int64_t head_rows = 256;
  int64_t num_minibatches = 1;
  int64_t epochs = 1;
  LossSettings loss;
  OptimizerSettings optimizer;
  StopSettings stop;

  template <class V>
  void visit(V&& v) {
    v("profile", profile, "precision that the actor computes in", base::OneOf{"f32", "bf16", "fp8", "fp8_fp4"});
    v("simulate_kv", simulate_kv,
      "profiles f32 and bf16: put KV entries on the e4m3 grid, as an fp8 engine does (its profile does so anyway)");
    v("simulate_index", simulate_index,
      "profiles f32 and bf16: put indexer queries and keys on the e2m1 grid likewise");
    v("routing_replay", routing_replay,
      "compute with the experts that the rollout engine chose for each token, instead of choosing again");
    v("device", device, "where the actor computes, as libtorch names it");
    v("tokens_per_microbatch", tokens_per_microbatch,
      "tokens packed into one forward and backward pass; a longer sample is a pass of its own",
      base::Range{1, 1 << 24});
    v("recompute", recompute, "keep only the streams between layers and compute each layer again in backward",
      base::Resume::harmless);
    v("head_rows", head_rows, "rows whose logits over the vocabulary are in memory at a time", base::Range{1, 1 << 20});
    v("num_minibatches", num_minibatches, "updates per pass over the groups of a step", base::Range{1, 1 << 20});
    v("epochs", epochs, "passes over the groups of a step", base::Range{1, 1000});
    v("loss", loss, "reinforcement learning loss");
    v("optimizer", optimizer, "optimizer");
    v("stop", stop, "when the run stops by itself", base::Resume::harmless);
  }

  // The profile with the simulations asked for.
  model::Profile precision() const;
  // Relations between fields. Error{invalid_argument} naming the settings to change.
  void check() const;
};

// The rollout's temperature divides the actor's logits: Error{invalid_argument} unless it is finite and above 0
// (training from greedy answers has no policy ratio).
void check_temperature(double temperature);

}  // namespace actor
