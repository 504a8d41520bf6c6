// What the step calls: each phase with its bar, its time and its way to stop.
#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "controller/controller.h"
#include "controller/step_figures.h"
#include "metrics/names.h"
#include "weight_sync/in_process.h"

namespace controller {
namespace {

uint64_t seed_of(const Run& run) { return static_cast<uint64_t>(run.settings.run.seed); }

std::string rate(int64_t num_tokens, double seconds) {
  return seconds > 0 ? fmt::format("{:.0f} tokens/s", static_cast<double>(num_tokens) / seconds) : "";
}

}  // namespace

Controller::Controller(Run& run, actor::Actor& actor)
    : run_(run),
      actor_(actor),
      engine_(actor.masters().config, run.settings.rollout.engine, run.inputs.vocabulary()),
      generator_(engine_),
      judges_(run.settings.reward, reward_kinds(run.settings.eval)),
      order_(std::max<int64_t>(1, static_cast<int64_t>(run.inputs.problems.size())),
             base::derive_seed(seed_of(run), "data"), run.settings.data.shuffle),
      collector_(run.settings.rollout, seed_of(run), collector_parts()),
      pipeline_(collector_, run.settings.rollout.max_staleness, run.stop,
                [this](int64_t answered, int64_t asked, int64_t num_tokens) { show(answered, asked, num_tokens); }) {
  if (!run.progress.pipeline.is_null()) pipeline_.restore(run.progress.pipeline, "run state: pipeline");
}

CollectorParts Controller::collector_parts() {
  CollectorParts parts;
  parts.problem = [this](int64_t id) -> const data::Problem& {
    return run_.inputs.problems[static_cast<size_t>(order_.row(id))];
  };
  parts.generator = &generator_;
  parts.record_experts = run_.settings.actor.routing_replay;
  parts.score = judges_.scorer();
  return parts;
}

void Controller::show(int64_t answered, int64_t asked, int64_t num_tokens) {
  const std::lock_guard guard(bar_mutex_);
  if (bar_ != nullptr) bar_->update(answered, asked, rate(num_tokens, clock_.now_s() - bar_start_s_));
}

// A bar that show() moves, for as long as it lives.
struct Controller::Bar {
  Bar(Controller& owner, const std::string& name)
      : controller(owner), phase(owner.run_.console.phase(name, 0, "answers")) {
    const std::lock_guard guard(controller.bar_mutex_);
    controller.bar_ = &phase;
    controller.bar_start_s_ = controller.clock_.now_s();
  }
  ~Bar() {
    const std::lock_guard guard(controller.bar_mutex_);
    controller.bar_ = nullptr;
  }
  Controller& controller;
  report::Console::Phase phase;
};

std::optional<Collected> Controller::collect() {
  const Bar bar(*this, "generate");
  return pipeline_.next();
}

// A step without groups (all dropped) changes no weights. When stopped, the groups go back and a resumed run trains on
// them; so a step that has made one of several updates is finished first.
std::optional<actor::StepReport> Controller::train(Collected& collected) {
  if (collected.groups.empty()) return actor::StepReport{};
  report::Console::Phase phase = run_.console.phase("train", 0, "tokens");
  const int64_t updates_before = actor_.updates();
  try {
    return actor_.train(run_.progress.step + 1,
                        {collected.groups, run_.settings.rollout.sampling.temperature, exact_version()},
                        [&](int64_t done, int64_t total) {
                          if (run_.stop() && actor_.updates() == updates_before) throw Stopped{};
                          phase.update(done, total);
                        });
  } catch (const Stopped&) {
    pipeline_.give_back(std::move(collected));
    return std::nullopt;
  }
}

// The engine computes what the actor computes, to the bit, when both have one profile and one device.
std::optional<int64_t> Controller::exact_version() const {
  const model::Profile engine = model::Profile::parse(run_.settings.rollout.engine.profile);
  const bool same = engine == run_.settings.actor.precision() && actor_.masters().embed.device().is_cpu();
  return same ? std::optional(run_.progress.step) : std::nullopt;
}

void Controller::publish() {
  const metrics::Timers::Scope time = run_.timers.time(metrics::kTimePublish);
  const model::Profile profile = model::Profile::parse(run_.settings.rollout.engine.profile);
  weight_sync::WeightsSource source(actor_.masters(), weight_sync::publish_as(profile));
  weight_sync::publish(source, engine_.weights(), run_.progress.step);
  pipeline_.published(run_.progress.step);
}

bool Controller::evaluate_if_due() {
  evaluated_.clear();
  const EvalSettings& eval = run_.settings.eval;
  const int64_t step = run_.progress.step, last = run_.settings.run.steps;
  const bool due = (step == 0 && eval.at_start) || (step == last && eval.at_end) ||
                   (eval.every > 0 && step > 0 && step % eval.every == 0);
  if (!due || run_.progress.evaluated_step == step) return true;
  const metrics::Timers::Scope time = run_.timers.time(metrics::kTimeEval);
  std::vector<EvalResult> results;
  for (const EvalSet& set : run_.inputs.sets) {
    const Bar bar(*this, "evaluate " + set.settings.name);
    std::optional<EvalResult> result =
        evaluate_set(set, step, seed_of(run_), generator_, judges_.scorer(set.settings.reward_kind), run_.stop,
                     [this](int64_t answered, int64_t asked, int64_t tokens) { show(answered, asked, tokens); });
    if (!result) return false;
    results.push_back(std::move(*result));
  }
  for (const EvalResult& result : results) {
    run_.write(result);
    evaluated_.push_back(result.record);
  }
  run_.progress.evaluated_step = step;
  return true;
}

// The value of checkpoint.best after this step; nothing if it was not evaluated.
std::optional<double> Controller::score() const {
  metrics::StepMetrics figures;
  for (const metrics::EvalRecord& record : evaluated_) metrics::write_to(record, figures);
  return figures.find(std::string(metrics::kEvalPrefix) + run_.settings.checkpoint.best);
}

// A step that is the best so far is saved whether or not it is its turn.
void Controller::save_if_due() {
  const std::optional<double> value = score();
  const bool best = value && (!run_.progress.best || *value > *run_.progress.best);
  if (best) run_.progress.best = value;
  if (best || run_.save_due()) save(value);
}

void Controller::save(std::optional<double> value) {
  run_.progress.pipeline = pipeline_.state();
  run_.save(actor_, value);
}

// Evaluations are not in the step's line but in eval.jsonl alone: one that was interrupted is made up for after a
// resume.
void Controller::write(const Collected& collected, const actor::StepReport& report) {
  const int64_t step = run_.progress.step;
  metrics::StepMetrics figures = step_figures(step, collected, step - 1);
  figures.merge(report.metrics);
  std::vector<data::Group> samples = collected.groups;
  samples.insert(samples.end(), collected.dropped.begin(), collected.dropped.end());
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  run_.log.write_samples(step, samples);
  run_.write(std::move(figures));
  run_.obey(report.stop);
}

bool Controller::stopped() {
  save();
  return false;
}

}  // namespace controller
