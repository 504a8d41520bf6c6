// The actor: holds the policy's f32 masters and learns from groups of scored answers (GRPO and its relatives) or from
// demonstrations. One step: advantages -> packing by a token budget -> log-probs -> loss -> gradients, accumulated in
// f32 over microbatches -> one global norm -> AdamW on the masters.
//
// The forward pass runs on the run weights of the actor's profile (model::RunWeights); their gradients are passed
// straight through to the masters. The old policy's log-probs are those of the step's first weights: with one update
// per step they are the new ones without gradient; else, where the rollout's are exact, those; else a forward pass of
// their own. All calls from one thread at a
// time. The same calls on the same state give the same weights to the bit (same machine and number of threads).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actor/microbatch.h"
#include "actor/optimizer/adamw.h"
#include "actor/settings.h"
#include "actor/step_metrics.h"
#include "base/clock.h"
#include "model/weights.h"

namespace actor {

// Tokens computed so far and in all, of the current call; both count forward-only passes too. It may throw to abandon
// the call: the masters are then those after the last update made (none, with one update per step).
using Progress = std::function<void(int64_t done, int64_t total)>;

struct TrainBatch {
  std::span<const data::Group> groups;  // complete, scored; groups dropped by dynamic sampling are not in it
  double temperature = 1;               // that the answers were sampled at
  // Version of the actor's weights, when the engine computes log-probs as this actor does, to the bit (same profile).
  std::optional<int64_t> exact_version = std::nullopt;
};

struct StepReport {
  Metrics metrics;                  // by metrics/names.h
  std::optional<std::string> stop;  // why the run should stop now (stop_rules.h)
};

// One value per position from `from` on: log-prob of the token there given those before it, entropy of its distribution
// in nats.
struct Scored {
  std::vector<float> log_probs, entropies;
};

struct ActorState {
  NamedTensors tensors;  // "master.<name>", "m.<name>", "v.<name>", "reference.<name>"; experts as stacks
  base::Json json;       // step counts, schedule position, stop rules
};

class Actor {
 public:
  // masters: f32, the caller hands them over; they are moved to settings.device. ids_without_token: decisions 8. Keeps
  // a frozen copy of the start weights when the loss needs a reference policy. Errors: invalid_argument for settings
  // that contradict each other.
  Actor(ActorSettings settings, model::Weights masters, std::span<const int32_t> ids_without_token = {});

  // One step of reinforcement learning; step names it in messages. Errors: invalid_argument for a temperature that is
  // not above 0, and for samples that sequence.h refuses; nothing has changed then.
  StepReport train(int64_t step, const TrainBatch& batch, const Progress& progress = {});

  // One update of supervised fine-tuning: mean over all response tokens of -log_prob at temperature 1.
  StepReport train_sft(int64_t step, std::span<const SftExample> examples, const Progress& progress = {});

  // Forward only. Errors: invalid_argument for ids outside the vocabulary or a position without a token before it.
  std::vector<Scored> score(std::span<const ScoreRequest> requests, double temperature) const;

  // What is published and saved; changed in place by training. Shares memory with the actor.
  const model::Weights& masters() const { return masters_; }
  const ActorSettings& settings() const { return settings_; }
  int64_t updates() const { return updates_; }  // applied since the start: where the schedule stands

  // The whole state, sharing memory with the actor: to be written before the next training call.
  ActorState state() const;
  // Takes over a state of an actor with the same config and settings; the next step then repeats that actor's to the
  // bit. Errors: corruption naming `where` and the tensor that is missing, unknown, or of another shape or type;
  // nothing has changed then.
  void load_state(const ActorState& state, const std::string& where);

 private:
  struct Minibatch {
    std::vector<size_t> samples;    // all of its sequences, masked ones too
    std::vector<Microbatch> packs;  // the active ones
  };
  struct Update {
    double grad_norm = 0;  // before clipping
    double lr = 0;
    bool skipped = false;  // the norm is not finite: masters, moments and step counts are as before
  };
  class Ticker;  // calls a Progress

  void refresh_run_weights();
  void clear_gradients();
  Policy policy_of(const model::RunWeights& weights, double temperature, bool recompute) const;
  std::vector<Minibatch> plan(std::vector<Sequence>& sequences, size_t num_groups) const;
  std::vector<Microbatch> old_packs(const std::vector<Minibatch>& minibatches, std::vector<Sequence>& sequences) const;
  std::vector<Microbatch> reference_packs(const std::vector<Minibatch>& minibatches,
                                          const std::vector<Sequence>& sequences) const;
  void fill_log_probs(const Policy& policy, const std::vector<Microbatch>& packs, TokenField field,
                      std::vector<Sequence>& sequences, Ticker& ticker) const;
  void accumulate(const Policy& policy, const Microbatch& pack, std::vector<Sequence>& sequences, StepSums& sums);
  Update apply_update();
  StepReport report_of(int64_t step, const TrainBatch& batch, const std::vector<Sequence>& sequences,
                       const StepSums& sums);
  bool has_old_pass() const { return updates_per_step() > 1 || settings_.loss.kl_reward_coef > 0; }
  int64_t updates_per_step() const { return settings_.num_minibatches * settings_.epochs; }

  ActorSettings settings_;
  model::Profile profile_;
  model::Weights masters_;
  Tensor absent_V_;
  int64_t vocab_;  // ids from here on have no token
  model::RunWeights run_;
  std::vector<Tensor> leaves_;               // of the graph: what of run_ learns, in order of the optimizer
  std::optional<model::Weights> reference_;  // published values of the start weights
  std::optional<model::RunWeights> reference_run_;
  AdamW optimizer_;
  StopRules stop_rules_;
  int64_t updates_ = 0;
  base::Clock clock_;
};

}  // namespace actor
