// The settings of a run from a recipe and a command line, for the subcommands that take one.
#pragma once
#include "apps/arguments.h"
#include "controller/settings.h"

namespace apps {

// Assigns the recipe, then the overrides of the command line. `recipe`: a TOML file, or the folder of a run, whose
// saved settings are taken. Errors: base::Error for the file, UsageError for the overrides.
void read_recipe(base::Fields& fields, const std::string& recipe);

}  // namespace apps
