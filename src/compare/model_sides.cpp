// Scoring by engine, actor and plain passes.
#include "compare/model_sides.h"

#include <map>

#include "base/error.h"
#include "kernels/log_prob.h"

namespace compare {
namespace {

// Every token but the first has a value.
LogProbs after_the_first(std::span<const float> values) {
  LogProbs log_probs = {std::nullopt};
  log_probs.insert(log_probs.end(), values.begin(), values.end());
  return log_probs;
}

}  // namespace

EngineSide::EngineSide(std::string name, std::unique_ptr<rollout::Engine> engine,
                       const std::vector<int32_t>& absent_ids)
    : name_(std::move(name)), engine_(std::move(engine)) {
  const model::RunWeights& weights = engine_->engine_weights().serving();
  absent_V_ = kernels::absent_mask(absent_ids, weights.config.vocab_size, weights.embed.device());
}

std::vector<LogProbs> EngineSide::score(std::span<const Sequence> sequences, double temperature, const Watch& watch) {
  std::map<int64_t, size_t> place_of;  // by request
  for (size_t i = 0; i < sequences.size(); ++i) {
    rollout::Request request;
    request.prompt_ids = sequences[i].ids;
    request.score = true;
    request.input_logprob_temperature = temperature;
    place_of[engine_->submit(std::move(request))] = i;
  }
  std::vector<LogProbs> scores(sequences.size());
  const int64_t total = num_tokens(sequences), before = engine_->health().num_computed_tokens;
  while (!engine_->idle()) {
    watch.update(name_, std::min(total, engine_->health().num_computed_tokens - before), total);
    for (const rollout::Output& output : engine_->step()) {
      const size_t i = place_of.at(output.request);
      if (!output.error.empty())
        base::fail(base::Code::unavailable, "{}, {}: {}", name_, sequences[i].where, output.error);
      scores[i] = after_the_first(output.prompt_log_probs);
    }
  }
  return scores;
}

std::unique_ptr<Forward> EngineSide::forward() {
  const rollout::EngineWeights& weights = engine_->engine_weights();
  return std::make_unique<ModelForward>(weights.serving(), weights.profile(), absent_V_,
                                        engine_->settings().prefill_chunk);
}

ActorSide::ActorSide(std::string name, std::unique_ptr<actor::Actor> actor, const std::vector<int32_t>& absent_ids)
    : name_(std::move(name)), actor_(std::move(actor)) {
  const model::Weights& masters = actor_->masters();
  absent_V_ = kernels::absent_mask(absent_ids, masters.config.vocab_size, masters.embed.device());
}

// As many sequences at a time as fill a pass of the actor.
std::vector<LogProbs> ActorSide::score(std::span<const Sequence> sequences, double temperature, const Watch& watch) {
  std::vector<LogProbs> scores;
  const int64_t total = num_tokens(sequences);
  int64_t done = 0;
  std::vector<actor::ScoreRequest> requests;
  int64_t waiting = 0;
  const auto flush = [&] {
    watch.update(name_, done, total);
    for (const actor::Scored& scored : actor_->score(requests, temperature))
      scores.push_back(after_the_first(scored.log_probs));
    done += waiting;
    waiting = 0;
    requests.clear();
  };
  for (const Sequence& sequence : sequences) {
    requests.push_back({sequence.ids, 1});
    waiting += static_cast<int64_t>(sequence.ids.size());
    if (waiting >= actor_->settings().tokens_per_microbatch) flush();
  }
  if (!requests.empty()) flush();
  return scores;
}

std::unique_ptr<Forward> ActorSide::forward() {
  return std::make_unique<ModelForward>(actor_->run_weights(), actor_->settings().precision(), absent_V_, 0);
}

PlainSide::PlainSide(std::string name, model::RunWeights weights, model::Profile profile,
                     const std::vector<int32_t>& absent_ids)
    : name_(std::move(name)), weights_(std::move(weights)), profile_(std::move(profile)) {
  absent_V_ = kernels::absent_mask(absent_ids, weights_.config.vocab_size, weights_.embed.device());
}

std::vector<LogProbs> PlainSide::score(std::span<const Sequence> sequences, double temperature, const Watch& watch) {
  std::vector<LogProbs> scores;
  const int64_t total = num_tokens(sequences);
  int64_t done = 0;
  const std::unique_ptr<Forward> forward = this->forward();
  for (const Sequence& sequence : sequences) {
    Tensor streams_TMD = forward->start(sequence.ids);
    for (int64_t layer = 0; layer < weights_.config.num_hidden_layers; ++layer) {
      watch.update(name_, done, total);
      streams_TMD = forward->layer(layer, streams_TMD).output_TMD();
    }
    scores.push_back(forward->log_probs(forward->final_hidden(streams_TMD), temperature));
    done += static_cast<int64_t>(sequence.ids.size());
  }
  return scores;
}

std::unique_ptr<Forward> PlainSide::forward() {
  return std::make_unique<ModelForward>(weights_, profile_, absent_V_, 0);
}

}  // namespace compare
