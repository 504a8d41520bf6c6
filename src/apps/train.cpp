// furlong train: a recipe from its start, or a stopped run from its last step.
#include "controller/train.h"
#include "apps/commands.h"
#include "apps/recipe.h"
#include "base/stop.h"

namespace apps {
namespace {

const Usage kUsage = {"train", "RECIPE | --resume RUN",
                      "Runs a recipe (TOML): warm-up, reinforcement learning, evaluations, the final model in "
                      "run.dir/model. Every setting of the recipe can be "
                      "given as --section.key=value too.\nWith --resume, RUN is the folder of a run that was stopped, "
                      "however it ended: it goes on from its last "
                      "committed step. Ctrl-C or SIGTERM ends the run cleanly and prints the command that resumes it.",
                      1, 1};

struct TrainOptions {
  bool resume = false;
  bool allow_changed = false;

  template <class V>
  void visit(V&& v) {
    v("resume", resume, "go on with the run in RUN instead of starting one");
    v("allow_changed", allow_changed, "with resume: accept changed settings that alter the result of the run");
  }
};

}  // namespace

int run_train(const Call& call) {
  TrainOptions options;
  controller::RunSettings settings;
  base::Fields fields = base::fields_of(options);
  for (base::Field& field : base::fields_of(settings)) fields.push_back(std::move(field));
  const CommandLine line = read_command_line(fields, kUsage, call.arguments);
  if (line.help) return print_help(fields, kUsage);
  // A recipe sets the run, not how it is called this time: that stands on the command line alone.
  read_recipe(settings, line.positional.front());
  apply_overrides(fields, line);

  const base::StopSignals stop;
  controller::Invocation invocation;
  invocation.program = call.program;
  invocation.resume = options.resume;
  invocation.allow_changed = options.allow_changed;
  const controller::RunEnd end = controller::train(settings, invocation, [&stop] { return stop.requested(); });
  return end == controller::RunEnd::stopped ? stop.exit_code() : 0;
}

}  // namespace apps
