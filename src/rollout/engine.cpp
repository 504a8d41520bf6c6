// What comes in: requests with their checks, cancels, pauses, new weights.
#include "rollout/engine.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/rng.h"
#include "kernels/log_prob.h"

namespace rollout {
namespace {
using base::Code;

SchedulerLimits limits_of(const EngineSettings& settings) {
  return {settings.num_slots, settings.max_batch_tokens, settings.prefill_chunk};
}

const EngineSettings& checked(const EngineSettings& settings, const model::Config& config) {
  if (settings.max_batch_tokens < settings.num_slots) {
    base::fail(
        Code::invalid_argument,
        "max_batch_tokens is {} and num_slots is {}: a pass must hold one token of each running answer; raise the "
        "first or lower the second",
        settings.max_batch_tokens, settings.num_slots);
  }
  if (settings.max_context > config.max_position_embeddings) {
    base::fail(Code::invalid_argument, "max_context is {}; the model's max_position_embeddings is {}",
               settings.max_context, config.max_position_embeddings);
  }
  return settings;
}

}  // namespace

Engine::Answer::Answer(std::shared_ptr<const Request> r, int64_t request_id, int64_t index)
    : request(std::move(r)), text(request->sampling.stop) {
  output.request = request_id;
  output.index = index;
  if (!request->score) output.seed = request->seeds[static_cast<size_t>(index)];
}

void Engine::Answer::reserve(size_t num_tokens) {
  output.response_ids.reserve(num_tokens);
  output.log_probs.reserve(num_tokens);
  output.versions.reserve(num_tokens);
}

int32_t Engine::Answer::token(int64_t position) const {
  const auto at = static_cast<size_t>(position), prompt = request->prompt_ids.size();
  return at < prompt ? request->prompt_ids[at] : output.response_ids[at - prompt];
}

int64_t Engine::Answer::length() const {
  return static_cast<int64_t>(request->prompt_ids.size() + output.response_ids.size());
}

Engine::Engine(const model::Config& config, const EngineSettings& settings, Vocabulary vocabulary,
               tensor::Device device)
    : config_(config),
      settings_(checked(settings, config)),
      vocabulary_(std::move(vocabulary)),
      device_(device),
      has_token_(static_cast<size_t>(config.vocab_size), true),
      weights_(config, model::Profile::parse(settings.profile), device,
               [this](const std::function<void()>& swap) {
                 const std::lock_guard turn(turn_);
                 swap();
                 after_update();
               }),
      cache_(config, settings.num_slots, settings.max_context, device),
      rope_(model::RopeTables::make(config, settings.max_context, device)),
      scheduler_(limits_of(settings)) {
  for (const int32_t id : vocabulary_.ids_without_token) {
    if (id >= 0 && id < config.vocab_size) has_token_[static_cast<size_t>(id)] = false;
  }
  absent_V_ = kernels::absent_mask(vocabulary_.ids_without_token, config.vocab_size, at::kCPU);
  publish_health();
}

void Engine::check_prompt(const Request& request) const {
  const auto size = static_cast<int64_t>(request.prompt_ids.size());
  if (size == 0) base::fail(Code::invalid_argument, "the prompt is empty; it needs at least one token");
  const int64_t room = request.score ? settings_.max_context : settings_.max_context - 1;
  if (size > room) {
    base::fail(Code::invalid_argument, "the prompt has {} tokens; with max_context = {} at most {} are possible{}",
               size, settings_.max_context, room, request.score ? "" : " (one is left for the answer)");
  }
  for (size_t i = 0; i < request.prompt_ids.size(); ++i) {
    const int32_t id = request.prompt_ids[i];
    if (id < 0 || id >= config_.vocab_size) {
      base::fail(Code::invalid_argument, "token {} of the prompt is id {}; ids of this model are 0..{}", i, id,
                 config_.vocab_size - 1);
    }
    if (!has_token_[static_cast<size_t>(id)]) {
      base::fail(Code::invalid_argument, "token {} of the prompt is id {}, which the tokenizer does not have", i, id);
    }
  }
}

void Engine::check(const Request& request) const {
  check_prompt(request);
  if (request.score) {
    if (request.num_samples != 1)
      base::fail(Code::invalid_argument, "a score has one sample, not {}", request.num_samples);
    const double t = request.input_logprob_temperature;
    if (!(std::isfinite(t) && t > 0)) {
      base::fail(Code::invalid_argument, "input_logprob_temperature is {}; it must be a finite number above 0", t);
    }
    return;
  }
  request.sampling.check(config_.vocab_size);
  if (!request.sampling.stop.empty() && !vocabulary_.bytes_of) {
    base::fail(Code::invalid_argument, "stop texts need a tokenizer, and this engine has none; use stop_token_ids");
  }
  if (request.num_samples < 1)
    base::fail(Code::invalid_argument, "num_samples is {}; it must be at least 1", request.num_samples);
  if (request.seeds.empty()) return;
  if (static_cast<int64_t>(request.seeds.size()) != request.num_samples) {
    base::fail(Code::invalid_argument, "{} seeds for {} samples; give one for each, or none", request.seeds.size(),
               request.num_samples);
  }
  std::unordered_set<uint64_t> seen;
  for (const uint64_t seed : request.seeds) {
    if (!seen.insert(seed).second) {
      base::fail(Code::invalid_argument, "two samples of one prompt have the seed {}: they would be equal", seed);
    }
  }
}

int64_t Engine::submit(Request request) {
  check(request);
  const std::lock_guard guard(inbox_mutex_);
  const int64_t id = next_request_++;
  if (!request.score && request.seeds.empty()) {
    const uint64_t requests = base::derive_seed(static_cast<uint64_t>(settings_.seed), "requests");
    request.seeds = group_seeds(base::derive_seed(requests, static_cast<uint64_t>(id)), request.num_samples);
  }
  num_unfinished_ += request.num_samples;
  submitted_.emplace_back(id, std::move(request));
  return id;
}

void Engine::cancel(int64_t request) {
  const std::lock_guard guard(inbox_mutex_);
  cancelled_.push_back(request);
}

void Engine::admit(int64_t id, Request request) {
  const auto shared = std::make_shared<const Request>(std::move(request));
  const auto size = static_cast<int64_t>(shared->prompt_ids.size());
  // A score needs no logits after its last token. One token alone has no log-prob, but its pass is run like any other.
  const int64_t num_prompt = shared->score ? std::max<int64_t>(size - 1, 1) : size;
  std::vector<int64_t>& sequences = sequences_[id];
  sequences = scheduler_.add(num_prompt, shared->num_samples);
  const int64_t room = std::min(shared->sampling.max_new_tokens, settings_.max_context - size);
  for (size_t i = 0; i < sequences.size(); ++i) {
    Answer answer(shared, id, static_cast<int64_t>(i));
    if (!shared->score) answer.reserve(static_cast<size_t>(room));
    answers_.emplace(sequences[i], std::move(answer));
  }
}

void Engine::take_inbox() {
  std::vector<std::pair<int64_t, Request>> submitted;
  std::vector<int64_t> cancelled;
  {
    const std::lock_guard guard(inbox_mutex_);
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
  }
  for (auto& [id, request] : submitted) admit(id, std::move(request));
  for (const int64_t id : cancelled) {
    const auto at = sequences_.find(id);
    if (at == sequences_.end()) continue;
    for (const int64_t sequence : std::vector<int64_t>(at->second)) finish(sequence, Ended::cancelled);
  }
}

std::vector<Output> Engine::step() {
  const std::lock_guard turn(turn_);
  take_inbox();
  if (!paused_ && !answers_.empty() && weights_.version() != weight_sync::kNoVersion) {
    try {
      run_pass();
    } catch (...) {
      retract_all();  // a pass that broke off may have written half of a cache
      throw;
    }
  }
  num_unfinished_ -= static_cast<int64_t>(finished_.size());
  publish_health();
  return std::exchange(finished_, {});
}

void Engine::retract_all() {
  for (const int64_t sequence : scheduler_.retract_all()) ++answers_.at(sequence).output.num_retractions;
}

// New weights have just replaced others (or the first have come). Also the caches of a pause in place stay.
void Engine::after_update() {
  const bool keep = paused_ ? *paused_ == PauseMode::in_place : settings_.on_update == "continue";
  if (!keep) return retract_all();
  for (const int64_t sequence : scheduler_.new_weights()) answers_.at(sequence).output.mixed_cache = true;
}

void Engine::pause(PauseMode mode) {
  const std::lock_guard turn(turn_);
  take_inbox();
  paused_ = mode;
  if (mode == PauseMode::retract) retract_all();
  if (mode == PauseMode::abort) {
    std::vector<int64_t> sequences;
    for (const auto& [sequence, answer] : answers_) sequences.push_back(sequence);
    std::sort(sequences.begin(), sequences.end());
    for (const int64_t sequence : sequences) finish(sequence, Ended::cancelled);
  }
  publish_health();
}

void Engine::resume() {
  const std::lock_guard turn(turn_);
  paused_.reset();
  publish_health();
}

void Engine::publish_health() {
  const std::lock_guard guard(health_mutex_);
  health_ = counters_;
  health_.paused = paused_.has_value();
  health_.num_running = scheduler_.num_running();
  health_.num_free_slots = scheduler_.num_free_slots();
}

Health Engine::health() const {
  Health health;
  {
    const std::lock_guard guard(health_mutex_);
    health = health_;
  }
  health.version = weights_.version();
  health.num_unfinished = num_unfinished_.load();
  return health;
}

}  // namespace rollout
