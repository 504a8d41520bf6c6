// The settings of a run from a recipe and a command line, for the subcommands that take one.
#pragma once
#include <string>

#include "controller/settings.h"

namespace apps {

// Assigns a recipe: a TOML file, or the folder of a run, whose saved settings are taken, with run.dir where the folder
// is now. Errors: base::Error naming file and line.
void read_recipe(controller::RunSettings& settings, const std::string& recipe);

// For a recipe that is the folder of a run: the model at the start of the run is replaced by the one that the run ended
// with. Error{not_found} if it has not ended.
void take_trained_model(controller::RunSettings& settings, const std::string& recipe);

}  // namespace apps
