// furlong eval: pass@k of a model, without learning.
#include "apps/commands.h"
#include "apps/recipe.h"
#include "base/stop.h"
#include "controller/train.h"

namespace apps {
namespace {

const Usage kUsage = {"eval", "RECIPE",
                      "Evaluates the model of a recipe (model.path, or the random weights of model.config) on the sets "
                      "of its section eval and prints the\n"
                      "table: pass@k, greedy accuracy, truncated answers. Another model: --model.path=FOLDER. RECIPE "
                      "may be the folder of a run. Results are\n"
                      "added to the eval.jsonl of --run.dir if that is given.",
                      1, 1};

}  // namespace

int run_eval(const Arguments& arguments) {
  controller::RunSettings settings;
  base::Fields fields = base::fields_of(settings);
  const CommandLine line = read_command_line(fields, kUsage, arguments);
  if (line.help) return print_help(fields, kUsage);
  read_recipe(fields, line.positional.front());
  settings.run.dir.clear();  // the recipe's own run is not written to
  apply_overrides(fields, line);

  const base::StopSignals stop;
  const controller::RunEnd end = controller::evaluate(settings, [&stop] { return stop.requested(); });
  return end == controller::RunEnd::stopped ? stop.exit_code() : 0;
}

}  // namespace apps
