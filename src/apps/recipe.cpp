// Reading of recipes.
#include "apps/recipe.h"

#include <filesystem>

#include "base/error.h"

namespace apps {

namespace fs = std::filesystem;
using base::Code;

void read_recipe(controller::RunSettings& settings, const std::string& recipe) {
  base::Fields fields = base::fields_of(settings);
  if (!fs::is_directory(recipe)) return base::read_settings(fields, recipe);
  const fs::path saved = fs::path(recipe) / "settings.toml";
  if (!fs::exists(saved)) {
    base::fail(Code::not_found,
               "{}: not the folder of a run: it holds no settings.toml. Give a recipe, or the run.dir of a run",
               recipe);
  }
  base::read_settings(fields, saved);
  settings.run.dir = recipe;  // the folder may have been moved
}

void take_trained_model(controller::RunSettings& settings, const std::string& recipe) {
  if (!fs::is_directory(recipe)) return;
  const fs::path model = fs::path(recipe) / "model";
  if (!fs::exists(model)) {
    base::fail(Code::not_found,
               "{}: the run has not ended, so it has no model yet. Resume it, or give its recipe to evaluate the start",
               recipe);
  }
  if (settings.tokenizer.path.empty()) settings.tokenizer.path = settings.model.path;
  settings.model.path = model.string();
  settings.model.config.clear();
}

}  // namespace apps
