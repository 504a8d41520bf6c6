// The course of a run: checks, resume, warm-up, learning, the end.
#include "controller/train.h"

#include "base/files.h"
#include "base/log.h"
#include "base/parallel.h"
#include "checkpoint/save.h"
#include "controller/controller.h"
#include "controller/resume.h"
#include "controller/start.h"
#include "controller/summary.h"
#include "controller/warmup.h"
#include "report/text_chart.h"

namespace controller {
namespace fs = std::filesystem;
using base::Code;
namespace {

void set_threads(const RunSection& run) {
  if (run.threads > 0) base::set_num_threads(static_cast<int>(run.threads));
}

std::vector<MemoryPart> check_fits(const RunSettings& settings, const Inputs& inputs, report::Console& console) {
  std::vector<MemoryPart> parts = plan_run(settings, inputs, Purpose::training);
  const int64_t available = available_memory_bytes();
  console.line(describe_memory(parts, available));
  check_memory(parts, available);
  return parts;
}

void save_settings(const RunSettings& settings, const RunFolder& folder) {
  RunSettings copy = settings;
  base::Fields fields = base::fields_of(copy);
  base::write_file_atomic(folder.settings_toml(), base::settings_to_toml(fields));
  base::write_file_atomic(folder.settings_json(), base::settings_to_json(fields).dump(1) + "\n");
}

// Lines to tell what is different from the run that is resumed. Nothing saved yet: it was killed before its first step.
std::vector<std::string> changes_since(const RunFolder& folder, const RunSettings& settings, bool allow_changed) {
  if (!fs::exists(folder.settings_json())) return {};
  return accept_changes(settings, base::read_json(folder.settings_json()), allow_changed);
}

void check_same_data(const Saved& saved, const Inputs& inputs, bool allow_changed) {
  if (saved.fingerprint == inputs.fingerprint) return;
  const std::string text =
      fmt::format("{}: the data files hold other rows than when the run was started (fingerprint {} then, {} now)",
                  saved.where, saved.fingerprint, inputs.fingerprint);
  if (!allow_changed) {
    base::fail(Code::invalid_argument, "{}. Put the files back, or accept the change with --allow_changed", text);
  }
  spdlog::warn(text);
}

RunEnd say_stopped(Run& run, const Invocation& invocation) {
  const std::string command = fmt::format("{} train --resume {}", invocation.program, run.folder.path().string());
  run.log.write_event(run.log_step(), "stop", "told to stop");
  run.console.line(fmt::format("stopped after step {} of phase {}; to go on:\n  {}", run.progress.step,
                               to_string(run.progress.phase), command));
  return RunEnd::stopped;
}

// The tokenizer goes with the policy, so that the folder is complete for whoever loads it.
void save_tokenizer(const Run& run) {
  const fs::path file = run.inputs.tokenizer.name(), named = file.parent_path() / "tokenizer_config.json";
  base::write_file_atomic(run.folder.model() / "tokenizer.json", base::read_file(file));
  if (fs::exists(named)) base::write_file_atomic(run.folder.model() / "tokenizer_config.json", base::read_file(named));
}

// The policy as a Hugging Face folder. One of an earlier end of this run is replaced.
void save_model(const Run& run, const actor::Actor& actor) {
  fs::remove_all(run.folder.model());
  const bool f32 = run.settings.checkpoint.model_dtype == "f32";
  checkpoint::save_weights(run.folder.model(), actor.masters(),
                           f32 ? checkpoint::SaveAs::f32 : checkpoint::SaveAs::bf16);
  save_tokenizer(run);
}

void finish(Run& run, const actor::Actor& actor) {
  run.save(actor);
  save_model(run, actor);
  const std::string summary = run_summary(run.folder.path());
  if (!summary.empty()) run.console.line("\n" + summary);
  run.console.line(
      fmt::format("the run lies in {}, its policy in {}", run.folder.path().string(), run.folder.model().string()));
}

void begin(Run& run, bool resumed, const std::vector<std::string>& changes) {
  if (!resumed) return run.log.write_event(run.log_step(), "start", "");
  for (const std::string& change : changes) run.console.line("changed setting: " + change);
  const std::string text =
      fmt::format("resumed after step {} of phase {}", run.progress.step, to_string(run.progress.phase));
  run.console.line(text);
  run.log.write_event(run.log_step(), "resume", fmt::format("{}; {} changed settings", text, changes.size()));
}

}  // namespace

RunEnd train(const RunSettings& settings, const Invocation& invocation, const StopAsked& stop) {
  settings.check();
  set_threads(settings.run);
  const RunFolder folder(settings.run.dir, invocation.resume ? Opening::resume : Opening::start);
  const std::vector<std::string> changes = changes_since(folder, settings, invocation.allow_changed);
  const Inputs inputs = read_inputs(settings, Purpose::training);
  std::optional<Saved> saved = invocation.resume ? load_newest(folder) : std::nullopt;
  if (saved) check_same_data(*saved, inputs, invocation.allow_changed);
  const Phase first = settings.warmup.steps > 0 ? Phase::warmup : Phase::learning;
  const RunProgress start = saved ? saved->progress : RunProgress{.phase = first};

  Run run(settings, inputs, folder, stop, start, saved.has_value());
  const std::vector<MemoryPart> memory = check_fits(settings, inputs, run.console);
  const int64_t held_before = held_memory().now;
  save_settings(settings, folder);
  begin(run, saved.has_value(), changes);
  std::unique_ptr<actor::Actor> actor = make_actor(settings, inputs, run.progress.phase, saved);
  saved.reset();  // its tensors are the actor's now

  if (run.progress.phase == Phase::warmup) {
    if (!warm_up(run, *actor)) return say_stopped(run, invocation);
    actor = begin_learning(settings, inputs, std::move(actor));
    run.progress = {.phase = Phase::learning};
    run.save(*actor);
  }
  if (settings.run.steps > 0 || !inputs.sets.empty()) {
    Controller controller(run, *actor);
    if (!controller.learn()) return say_stopped(run, invocation);
  }
  finish(run, *actor);
  run.console.line(describe_peak(memory, held_memory().peak - held_before));
  return RunEnd::finished;
}

}  // namespace controller
