// Which side a name means, and making it.
#include "apps/compare_sides.h"

#include <algorithm>

#include "base/error.h"
#include "compare/model_sides.h"
#include "compare/server_side.h"
#include "weight_sync/in_process.h"

namespace apps {
namespace {

using base::Code;
using compare::SideName;

void check_one(const compare::Sequence& sequence, const ModelFolder& model, const SideName& side) {
  const model::Config& config = model.weights.config;
  const auto length = static_cast<int64_t>(sequence.ids.size());
  if (length > config.max_position_embeddings) {
    base::fail(Code::invalid_argument, "{}: {} tokens; {} takes {} (max_position_embeddings)", sequence.where, length,
               side.place, config.max_position_embeddings);
  }
  const auto outside =
      std::find_if(sequence.ids.begin(), sequence.ids.end(), [&](int32_t id) { return id >= config.vocab_size; });
  if (outside != sequence.ids.end()) {
    base::fail(Code::invalid_argument, "{}: id {}: ids of {} are 0..{}", sequence.where, *outside, side.place,
               config.vocab_size - 1);
  }
  if (model.tokenizer) model.tokenizer->check_ids(sequence.ids, sequence.where);
}

}  // namespace

CompareSides::CompareSides(const std::string& a, const std::string& b, const std::string& tokenizer)
    : names_{compare::parse_side(a), compare::parse_side(b)} {
  for (size_t s = 0; s < 2; ++s) {
    const SideName& name = names_[s];
    if (name.kind == SideName::Kind::file) files_[s] = std::make_unique<compare::FileSide>(name.text, name.place);
    if (name.has_model() && !models_.contains(name.place)) {
      models_[name.place] = std::make_unique<ModelFolder>(open_model(name.place, tokenizer));
    }
  }
  if (models_.empty() && !tokenizer.empty()) tokenizer_ = data::Tokenizer::load(tokenizer);
}

const data::Tokenizer* CompareSides::tokenizer() const {
  for (const SideName& name : names_) {
    if (name.has_model() && model_of(name).tokenizer) return &*model_of(name).tokenizer;
  }
  return tokenizer_ ? &*tokenizer_ : nullptr;
}

const compare::FileSide* CompareSides::file() const { return files_[0] ? files_[0].get() : files_[1].get(); }

void CompareSides::check(const std::vector<compare::Sequence>& sequences) const {
  for (const SideName& name : names_) {
    if (!name.has_model()) continue;
    for (const compare::Sequence& sequence : sequences) check_one(sequence, model_of(name), name);
  }
}

std::array<std::unique_ptr<compare::Side>, 2> CompareSides::open(const std::vector<compare::Sequence>& sequences,
                                                                 const PassSizes& sizes) {
  size_t longest = 1;
  for (const compare::Sequence& sequence : sequences) longest = std::max(longest, sequence.ids.size());
  return {open_one(0, static_cast<int64_t>(longest), sizes), open_one(1, static_cast<int64_t>(longest), sizes)};
}

std::unique_ptr<compare::Side> CompareSides::open_one(size_t side, int64_t longest, const PassSizes& sizes) {
  const SideName& name = names_[side];
  if (name.kind == SideName::Kind::file) return std::move(files_[side]);
  if (name.kind == SideName::Kind::server) {
    return std::make_unique<compare::ServerSide>(name.place, sizes.request_timeout_s);
  }
  const ModelFolder& model = model_of(name);
  const std::vector<int32_t> absent = model.ids_without_token();
  if (name.kind == SideName::Kind::plain) {
    return std::make_unique<compare::PlainSide>(name.text, model::RunWeights::frozen(model.weights, name.profile),
                                                name.profile, absent);
  }
  if (name.kind == SideName::Kind::engine) {
    rollout::EngineSettings settings;
    settings.profile = name.profile.name;
    settings.num_slots = std::min(sizes.num_slots, sizes.batch_tokens);
    settings.max_batch_tokens = sizes.batch_tokens;
    settings.prefill_chunk = sizes.prefill_chunk;
    settings.max_context = std::max<int64_t>(2, longest);
    return std::make_unique<compare::EngineSide>(name.text, make_engine(model, settings), absent);
  }
  actor::ActorSettings settings;
  const std::string& profile = name.profile.name;
  settings.profile = profile.substr(0, profile.find('+'));
  settings.simulate_kv = name.profile.kv_sim && !name.profile.quantise;
  settings.simulate_index = name.profile.index_sim && !name.profile.quantise;
  settings.tokens_per_microbatch = sizes.batch_tokens;
  // Shares the masters: it is only asked for log-probs.
  return std::make_unique<compare::ActorSide>(name.text,
                                              std::make_unique<actor::Actor>(settings, model.weights, absent), absent);
}

}  // namespace apps
