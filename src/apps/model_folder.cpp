// Opening of model folders.
#include "apps/model_folder.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/load.h"
#include "weight_sync/in_process.h"

namespace apps {

std::vector<int32_t> ModelFolder::ids_without_token() const {
  return tokenizer ? tokenizer->ids_without_token(weights.config.vocab_size) : std::vector<int32_t>();
}

const data::Tokenizer& ModelFolder::tokenizer_for(const std::string& what) const {
  if (!tokenizer) {
    base::fail(base::Code::invalid_argument,
               "{} needs a tokenizer, and the model's folder holds no tokenizer.json: give --tokenizer=FILE", what);
  }
  return *tokenizer;
}

ModelFolder open_model(const std::string& folder, const std::string& tokenizer) {
  namespace fs = std::filesystem;
  ModelFolder model;
  const bool has_own = fs::exists(fs::path(folder) / "tokenizer.json");
  if (!tokenizer.empty() || has_own) model.tokenizer = data::Tokenizer::load(tokenizer.empty() ? folder : tokenizer);
  model.weights = checkpoint::load_weights(folder);
  return model;
}

std::unique_ptr<rollout::Engine> make_engine(const ModelFolder& model, const rollout::EngineSettings& settings) {
  rollout::Vocabulary vocabulary;
  if (model.tokenizer) {
    vocabulary.bytes_of = [&tokenizer = *model.tokenizer](int32_t id) { return tokenizer.bytes_of(id); };
    vocabulary.ids_without_token = model.ids_without_token();
  }
  auto engine = std::make_unique<rollout::Engine>(model.weights.config, settings, std::move(vocabulary));
  weight_sync::WeightsSource source(model.weights, weight_sync::publish_as(model::Profile::parse(settings.profile)));
  weight_sync::publish(source, engine->weights(), 0);
  return engine;
}

std::unique_ptr<actor::Actor> make_actor(ModelFolder& model, const actor::ActorSettings& settings) {
  const std::vector<int32_t> absent = model.ids_without_token();
  return std::make_unique<actor::Actor>(settings, std::move(model.weights), absent);
}

void set_threads(int64_t threads) {
  if (threads > 0) base::set_num_threads(static_cast<int>(threads));
}

}  // namespace apps
