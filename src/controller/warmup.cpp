// The loop of the supervised phase.
#include "controller/warmup.h"

#include "base/rng.h"
#include "metrics/names.h"

namespace controller {

actor::ActorSettings warmup_actor(const RunSettings& settings) {
  actor::ActorSettings actor = settings.actor;
  actor.optimizer = settings.warmup.optimizer;
  actor.loss.kl_loss_coef = 0;
  actor.loss.kl_reward_coef = 0;
  return actor;
}

std::vector<actor::SftExample> warmup_batch(const std::vector<data::Demonstration>& rows, EpochOrder& order,
                                            int64_t batch_size, int64_t step) {
  std::vector<actor::SftExample> batch;
  for (int64_t i = 0; i < batch_size; ++i) {
    const data::Demonstration& row = rows[static_cast<size_t>(order.row(step * batch_size + i))];
    batch.push_back({row.prompt_ids, row.response_ids});
  }
  return batch;
}

bool warm_up(Run& run, actor::Actor& actor) {
  const WarmupSettings& settings = run.settings.warmup;
  const std::vector<data::Demonstration>& rows = run.inputs.demonstrations;
  const auto seed = static_cast<uint64_t>(run.settings.run.seed);
  EpochOrder order(static_cast<int64_t>(rows.size()), base::derive_seed(seed, "warmup"), settings.data.shuffle);
  report::Console::Phase phase = run.console.phase("warm-up", settings.steps, "steps");
  const actor::Progress stop_between_passes = [&](int64_t, int64_t) {
    if (run.stop()) throw Stopped{};
  };
  while (run.progress.step < settings.steps) {
    actor::StepReport report;
    try {
      const metrics::Timers::Scope time = run.timers.time(metrics::kTimeStep);
      report = actor.train_sft(run.log_step() + 1, warmup_batch(rows, order, settings.batch_size, run.progress.step),
                               stop_between_passes);
    } catch (const Stopped&) {
      run.save(actor);
      return false;
    }
    ++run.progress.step;
    metrics::StepMetrics figures(run.log_step());
    figures.merge(report.metrics);
    run.write(figures);
    phase.update(run.progress.step, settings.steps,
                 fmt::format("loss {:.4f}", report.metrics.at(std::string(metrics::kLossSft))));
    run.obey(report.stop);
    if (run.save_due()) run.save(actor);
  }
  return true;
}

}  // namespace controller
