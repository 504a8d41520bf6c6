// Checks across sections.
#include "controller/settings.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "metrics/pass_at_k.h"

namespace controller {
using base::Code;
namespace {

void check_model(const RunSettings& s) {
  if (s.model.path.empty() == s.model.config.empty()) {
    base::fail(Code::invalid_argument,
               "model.path is \"{}\" and model.config is \"{}\": give exactly one, a model to start from or the "
               "config.json of one that starts from random weights",
               s.model.path, s.model.config);
  }
}

void check_data(const RunSettings& s) {
  if (s.run.steps > 0 && s.data.rows.path.empty()) {
    base::fail(Code::invalid_argument,
               "run.steps is {} and data.path is empty: name the file of problems to learn from", s.run.steps);
  }
  if (s.warmup.steps > 0 && s.warmup.data.rows.path.empty()) {
    base::fail(Code::invalid_argument,
               "warmup.steps is {} and warmup.data.path is empty: name the file of demonstrations", s.warmup.steps);
  }
}

void check_groups(const RunSettings& s) {
  const RolloutSettings& r = s.rollout;
  if (r.samples_per_prompt < 2) {
    base::fail(Code::invalid_argument,
               "rollout.samples_per_prompt is {}: actor.loss.advantage = {} compares the answers to one prompt, so it "
               "needs at least 2",
               r.samples_per_prompt, s.actor.loss.advantage);
  }
  if (!r.dynamic_sampling.on && r.dynamic_sampling.groups_per_round > 0) {
    base::fail(
        Code::invalid_argument,
        "rollout.dynamic_sampling.groups_per_round is {} but rollout.dynamic_sampling.on is false: turn it on or "
        "leave the first out",
        r.dynamic_sampling.groups_per_round);
  }
  if (s.actor.num_minibatches > r.prompts_per_step) {
    base::fail(Code::invalid_argument,
               "actor.num_minibatches is {} and rollout.prompts_per_step is {}: each update needs a group",
               s.actor.num_minibatches, r.prompts_per_step);
  }
}

// An answer that can never reach its length limit is cut by the context instead: say which of the two was meant.
void check_length(const std::string& section, int64_t max_new_tokens, int64_t max_context) {
  if (max_new_tokens >= max_context) {
    base::fail(Code::invalid_argument,
               "{}.max_new_tokens is {} and rollout.engine.max_context is {}: prompt and answer must fit into the "
               "context; lower the first or raise the second",
               section, max_new_tokens, max_context);
  }
}

void check_sampling(const RunSettings& s) {
  const rollout::SamplingParams& sampling = s.rollout.sampling;
  actor::check_temperature(sampling.temperature);
  check_length("rollout.sampling", sampling.max_new_tokens, s.rollout.engine.max_context);
  if (sampling.top_p < 1 || sampling.top_k > 0 || sampling.min_p > 0) {
    spdlog::warn(
        "rollout.sampling.top_p = {}, top_k = {}, min_p = {}: answers are then not drawn from the policy whose "
        "log-probs "
        "are trained on; unfiltered sampling (1, -1, 0) is usual",
        sampling.top_p, sampling.top_k, sampling.min_p);
  }
}

// checkpoint.best names a figure that an evaluation writes.
void check_best(const RunSettings& s) {
  const std::string& best = s.checkpoint.best;
  if (best.empty()) return;
  if (s.eval.sets.empty()) {
    base::fail(Code::invalid_argument, "checkpoint.best is \"{}\" but eval.sets is empty: nothing is evaluated", best);
  }
  std::vector<std::string> figures;
  for (const EvalSetSettings& set : s.eval.sets) {
    for (const int64_t k : metrics::usual_ks(set.num_samples))
      figures.push_back(fmt::format("{}/pass@{}", set.name, k));
    if (set.greedy) figures.push_back(set.name + "/greedy");
    figures.push_back(set.name + "/reward");
  }
  if (std::find(figures.begin(), figures.end(), best) == figures.end()) {
    base::fail(Code::invalid_argument, "checkpoint.best is \"{}\"; the evaluations of this run have {}", best,
               fmt::join(figures, ", "));
  }
}

void check_eval(const RunSettings& s) {
  if (s.eval.sets.empty()) spdlog::warn("eval.sets is empty: nothing will show whether the policy gets better");
  for (const EvalSetSettings& set : s.eval.sets) {
    if (set.name.empty()) base::fail(Code::invalid_argument, "eval.sets: a set has no name");
    if (set.data.path.empty()) {
      base::fail(Code::invalid_argument, "eval.sets ({}).data.path is empty: name the file of its problems", set.name);
    }
    check_length("eval.sets (" + set.name + ").sampling", set.sampling.max_new_tokens, s.rollout.engine.max_context);
    if (set.num_samples > 1 && set.sampling.greedy()) {
      base::fail(Code::invalid_argument,
                 "eval.sets ({}): num_samples is {} with sampling.temperature {}: without sampling all answers are "
                 "equal; set num_samples = 1, or greedy = true beside a temperature above 0",
                 set.name, set.num_samples, set.sampling.temperature);
    }
  }
}

}  // namespace

void RunSettings::check_evaluation() const {
  check_model(*this);
  check_eval(*this);
  rewards::check_settings(reward);
}

void RunSettings::check() const {
  check_evaluation();
  check_data(*this);
  check_groups(*this);
  check_sampling(*this);
  check_best(*this);
  actor.check();
  warmup.optimizer.schedule.check();
}

}  // namespace controller
