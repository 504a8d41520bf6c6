// The recipes that come with the program say what it understands.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "controller/settings.h"
#include "model/config.h"

namespace controller {
namespace {
namespace fs = std::filesystem;

const fs::path kRecipes = fs::path(FURLONG_SOURCE_DIR) / "recipes";

RunSettings read(const fs::path& path) {
  RunSettings settings;
  base::Fields fields = base::fields_of(settings);
  base::read_settings(fields, path);
  return settings;
}

TEST(Recipes, EachIsReadAndFitsTogether) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(kRecipes)) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().string());
    const RunSettings settings = read(entry.path());
    settings.check();
    if (!settings.model.config.empty()) {
      const fs::path config = fs::path(FURLONG_SOURCE_DIR) / settings.model.config;
      model::Config::from_json(base::read_json(config), config.string());
    }
    ++count;
  }
  EXPECT_GE(count, 3);
}

TEST(Recipes, DemoUsesEveryMechanismOfTheArchitecture) {
  const fs::path path = fs::path(FURLONG_SOURCE_DIR) / read(kRecipes / "demo.toml").model.config;
  const model::Config config = model::Config::from_json(base::read_json(path), path.string());
  std::set<model::LayerKind> kinds(config.layer_types.begin(), config.layer_types.end());
  EXPECT_EQ(kinds.size(), 3u);
  EXPECT_TRUE(config.hash_layers.front());
  EXPECT_FALSE(config.hash_layers.back());
  EXPECT_TRUE(config.rope_scaling);
  // A prompt of 9 tokens and an answer of 32 reach beyond the window and fill blocks of every compressor.
  EXPECT_LT(config.sliding_window, 41);
  EXPECT_LT(config.hca_ratio * 2, 41);
  EXPECT_GT(41 / config.csa_ratio, config.index_topk);
}

}  // namespace
}  // namespace controller
