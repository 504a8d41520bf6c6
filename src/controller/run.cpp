// Logs, checkpoints and the end by a stop rule.
#include "controller/run.h"

#include "base/log.h"
#include "data/json_fields.h"
#include "metrics/names.h"

namespace controller {
using base::Code;
namespace {

checkpoint::Retention retention(const CheckpointSettings& settings) {
  return {.keep_last = settings.keep, .keep_best = !settings.best.empty()};
}

tensor::TensorToWrite to_write(const std::string& name, const tensor::Tensor& value) {
  return {name, value.scalar_type(), value.sizes().vec()};
}

// The last step whose lines in the logs stay. A run that starts (again) keeps none. The evaluation of the step that a
// checkpoint stands at may have been written after it, by a process that was killed then: it is due again.
int64_t last_logged(const RunFolder& folder, const RunProgress& progress, int64_t step, bool resumed) {
  if (!resumed) return step - 1;
  if (progress.phase == Phase::learning && progress.evaluated_step != progress.step) {
    report::drop_lines_after(folder.evaluations(), progress.step - 1);
  }
  return step;
}

}  // namespace

std::optional<Saved> load_newest(const RunFolder& folder) {
  std::optional<checkpoint::LoadedStep> step = checkpoint::RunState(folder.checkpoints(), {}).load_newest();
  if (!step) step = checkpoint::RunState(folder.warmup_checkpoints(), {}).load_newest();
  if (!step) return std::nullopt;
  Saved saved;
  saved.where = fmt::format("{}: checkpoint of step {}", folder.path().string(), step->step());
  const base::Json& state = step->state();
  saved.progress = progress_from_json(data::member(state, "progress", saved.where), saved.where);
  saved.config = model::Config::from_json(data::member(state, "config", saved.where), saved.where);
  saved.fingerprint = data::text_member(state, "fingerprint", saved.where);
  saved.actor.json = data::member(state, "actor", saved.where);
  for (const tensor::StoredTensor& stored : step->tensors()) saved.actor.tensors[stored.name] = step->read(stored.name);
  return saved;
}

Run::Run(const RunSettings& run_settings, const Inputs& run_inputs, const RunFolder& run_folder, StopAsked stop_asked,
         RunProgress start, bool resumed)
    : settings(run_settings),
      inputs(run_inputs),
      folder(run_folder),
      stop(std::move(stop_asked)),
      progress(std::move(start)),
      console(run_settings.console),
      log(run_folder.path(), last_logged(run_folder, progress, log_step(), resumed)),
      warmup_(run_folder.warmup_checkpoints(), retention(run_settings.checkpoint)),
      learning_(run_folder.checkpoints(), retention(run_settings.checkpoint)) {
  if (resumed) saved_at_ = {progress.phase, progress.step};
}

void Run::write(metrics::StepMetrics figures) {
  timers.write_to(figures);
  timers.clear();
  log.write(figures);
  if (progress.phase == Phase::learning) console.step(figures, settings.run.steps);
}

void Run::write(const EvalResult& result) {
  const metrics::EvalRecord& record = result.record;
  log.write_eval_samples(record.step, record.set, result.groups);
  if (!result.greedy.empty()) log.write_eval_samples(record.step, record.set + ".greedy", result.greedy);
  log.write(record);
  console.evaluation(record);
}

void Run::obey(const std::optional<std::string>& stop_rule) {
  if (!stop_rule) return;
  log.write_event(log_step(), "stop", *stop_rule);
  base::fail(Code::unavailable, "{}. The newest checkpoint in {} is from before this step", *stop_rule,
             folder.checkpoints().string());
}

bool Run::save_due() const { return progress.step % settings.checkpoint.every == 0; }

void Run::save(const actor::Actor& actor, std::optional<double> score) {
  if (saved_at_ == std::pair(progress.phase, progress.step)) return;
  const metrics::Timers::Scope time = timers.time(metrics::kTimeCheckpoint);
  actor::ActorState state = actor.state();
  checkpoint::StepContents contents;
  std::vector<tensor::Tensor> values;
  for (const auto& [name, value] : state.tensors) {
    contents.tensors.push_back(to_write(name, value));
    values.push_back(value);
  }
  contents.fetch = [&values](size_t index) { return values[index]; };
  contents.state = {{"progress", to_json(progress)},
                    {"config", actor.masters().config.to_json()},
                    {"fingerprint", inputs.fingerprint},
                    {"actor", std::move(state.json)}};
  contents.score = score;
  (progress.phase == Phase::warmup ? warmup_ : learning_).save(progress.step, contents);
  if (progress.phase == Phase::learning) warmup_.discard_after(-1);
  saved_at_ = {progress.phase, progress.step};
}

}  // namespace controller
