// The sides that compute here: rollout engine, actor, and the model by itself.
#pragma once
#include <memory>
#include <string>

#include "actor/actor.h"
#include "compare/forward.h"
#include "compare/side.h"
#include "rollout/engine.h"

namespace compare {

// By chunked prefill over a cache, several sequences at a time.
class EngineSide : public Side {
 public:
  // The engine serves weights; nobody else steps it. absent_ids: those that its vocabulary has no token for.
  EngineSide(std::string name, std::unique_ptr<rollout::Engine> engine, const std::vector<int32_t>& absent_ids);

  const std::string& name() const override { return name_; }
  std::vector<LogProbs> score(std::span<const Sequence> sequences, double temperature, const Watch& watch) override;
  std::unique_ptr<Forward> forward() override;

 private:
  std::string name_;
  std::unique_ptr<rollout::Engine> engine_;
  Tensor absent_V_;
};

// By packed passes without a cache.
class ActorSide : public Side {
 public:
  ActorSide(std::string name, std::unique_ptr<actor::Actor> actor, const std::vector<int32_t>& absent_ids);

  const std::string& name() const override { return name_; }
  std::vector<LogProbs> score(std::span<const Sequence> sequences, double temperature, const Watch& watch) override;
  std::unique_ptr<Forward> forward() override;

 private:
  std::string name_;
  std::unique_ptr<actor::Actor> actor_;
  Tensor absent_V_;
};

// The model's forward pass, one sequence at a time.
class PlainSide : public Side {
 public:
  PlainSide(std::string name, model::RunWeights weights, model::Profile profile,
            const std::vector<int32_t>& absent_ids);

  const std::string& name() const override { return name_; }
  std::vector<LogProbs> score(std::span<const Sequence> sequences, double temperature, const Watch& watch) override;
  std::unique_ptr<Forward> forward() override;

 private:
  std::string name_;
  model::RunWeights weights_;
  model::Profile profile_;
  Tensor absent_V_;
};

}  // namespace compare
