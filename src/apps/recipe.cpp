// Reading of recipes.
#include "apps/recipe.h"

#include <filesystem>

#include "base/error.h"

namespace apps {

void read_recipe(base::Fields& fields, const std::string& recipe) {
  namespace fs = std::filesystem;
  fs::path path = recipe;
  if (fs::is_directory(path)) {
    path /= "settings.toml";
    if (!fs::exists(path)) {
      base::fail(base::Code::not_found,
                 "{}: not the folder of a run: it holds no settings.toml. Give a recipe, or the run.dir of a run",
                 recipe);
    }
  }
  base::read_settings(fields, path);
}

}  // namespace apps
