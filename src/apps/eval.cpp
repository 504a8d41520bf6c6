// furlong eval: pass@k of a model, without learning.
#include "apps/commands.h"
#include "apps/recipe.h"
#include "base/stop.h"
#include "controller/train.h"

namespace apps {
namespace {

const Usage kUsage = {
    "eval", "RECIPE",
    "Evaluates a model on the sets of section eval and prints the table: pass@k, greedy accuracy, truncated answers. "
    "RECIPE is a recipe, whose "
    "model.path (or the random weights of model.config) is evaluated, or the folder of a run that has ended, for the "
    "model that it ended with. "
    "Another model: --model.path=FOLDER. With --run.dir the results are added to the eval.jsonl there.",
    1, 1};

}  // namespace

int run_eval(const Call& call) {
  controller::RunSettings settings;
  base::Fields fields = base::fields_of(settings);
  const CommandLine line = read_command_line(fields, kUsage, call.arguments);
  if (line.help) return print_help(fields, kUsage);
  read_recipe(settings, line.positional.front());
  take_trained_model(settings, line.positional.front());
  settings.run.dir.clear();  // a run is written to only if it is named
  apply_overrides(fields, line);

  const base::StopSignals stop;
  const controller::RunEnd end = controller::evaluate(settings, [&stop] { return stop.requested(); });
  return end == controller::RunEnd::stopped ? stop.exit_code() : 0;
}

}  // namespace apps
