// The table of subcommands.
#include "apps/commands.h"

namespace apps {

std::span<const Command> all_commands() {
  static constexpr Command kCommands[] = {
      {"train", "run a recipe: learn, evaluate, save; or go on with a run that was stopped", run_train},
      {"eval", "pass@k of a model on problem sets", run_eval},
      {"generate", "answers of a model to a prompt", run_generate},
      {"score", "log-probs that a model gives to texts or token ids, as JSON lines", run_score},
      {"compare", "two scorers, the same tokens: how far their log-probs lie apart, where and why", run_compare, 2},
      {"convert", "a model folder in other number formats, names or shards, verified", run_convert},
      {"inspect", "what a model folder holds: tensors, formats, sizes, what is missing", run_inspect},
      {"report", "how a run went: rewards, pass@k, gap, times, samples", run_report},
  };
  return kCommands;
}

}  // namespace apps
