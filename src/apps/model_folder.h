// A model folder opened for use, and the two ways to compute with it: a rollout engine that serves it, or an actor that
// holds it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actor/actor.h"
#include "data/tokenizer.h"
#include "model/weights.h"
#include "rollout/engine.h"

namespace apps {

struct ModelFolder {
  model::Weights weights;  // f32 masters
  std::optional<data::Tokenizer> tokenizer;

  std::vector<int32_t> ids_without_token() const;  // of the model's vocabulary; none without a tokenizer
  // Error{invalid_argument} that says what it is needed for and how to give one, if there is none.
  const data::Tokenizer& tokenizer_for(const std::string& what) const;
};

// tokenizer: tokenizer.json or its folder; empty: that of the model's folder, if it holds one.
// Errors: those of checkpoint::load_weights and data::Tokenizer::load.
ModelFolder open_model(const std::string& folder, const std::string& tokenizer);

// An engine that serves the weights as version 0. The folder must outlive it.
std::unique_ptr<rollout::Engine> make_engine(const ModelFolder& model, const rollout::EngineSettings& settings);

// An actor that owns the weights from here on.
std::unique_ptr<actor::Actor> make_actor(ModelFolder& model, const actor::ActorSettings& settings);

// Threads of tensor operations; 0 leaves it to libtorch (one for each core).
void set_threads(int64_t threads);

}  // namespace apps
