// The settings of a run as a whole: their list is frozen, their defaults are valid, and every recipe reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "base/files.h"
#include "controller/settings.h"

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = FURLONG_SOURCE_DIR;

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::istringstream text(base::read_file(path));
  for (std::string line; std::getline(text, line);) {
    if (!line.empty() && line.front() != '#') lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> only_in_first(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> rest;
  std::copy_if(a.begin(), a.end(), std::back_inserter(rest),
               [&](const std::string& x) { return std::find(b.begin(), b.end(), x) == b.end(); });
  return rest;
}

// A setting is a promise to users and one more thing that every reader has to understand. Adding one means adding its
// line to tests/repo/settings.txt, with the reason in the commit.
TEST(FrozenSettings, TheListIsTheOneThatWasAgreedOn) {
  controller::RunSettings settings;
  base::Fields fields = base::fields_of(settings);
  const std::vector<std::string> names = base::setting_names(fields),
                                 agreed = lines_of(kRoot / "tests/repo/settings.txt");
  EXPECT_THAT(only_in_first(names, agreed), testing::IsEmpty()) << "in the structs, not in tests/repo/settings.txt";
  EXPECT_THAT(only_in_first(agreed, names), testing::IsEmpty()) << "in tests/repo/settings.txt, not in the structs";
  EXPECT_EQ(names, agreed) << "or only the order differs";
}

TEST(FrozenSettings, DefaultsLieInTheirOwnRanges) {
  controller::RunSettings settings;
  base::Fields fields = base::fields_of(settings);
  EXPECT_NO_THROW(base::check_settings(fields, "defaults"));
}

TEST(FrozenSettings, EveryNameIsSnakeCaseAndEveryHelpSaysSomething) {
  static const std::regex name("[a-z][a-z0-9_]*(\\.[a-z][a-z0-9_]*)*");
  controller::RunSettings settings;
  for (const base::Field& field : base::fields_of(settings)) {
    EXPECT_TRUE(std::regex_match(field.name, name)) << field.name;
    EXPECT_GE(field.help.size(), 5u) << field.name << ": \"" << field.help << "\"";
  }
}

TEST(FrozenSettings, EveryRecipeReadsAndSurvivesItsOwnWriting) {
  size_t num_recipes = 0;
  for (const auto& entry : fs::directory_iterator(kRoot / "recipes")) {
    if (entry.path().extension() != ".toml") continue;
    ++num_recipes;
    controller::RunSettings read, again;
    base::Fields fields = base::fields_of(read), fields_again = base::fields_of(again);
    ASSERT_NO_THROW(base::read_settings(fields, entry.path())) << entry.path();
    base::parse_settings(fields_again, base::settings_to_toml(fields), "written");
    EXPECT_EQ(base::settings_to_json(fields), base::settings_to_json(fields_again)) << entry.path();
  }
  EXPECT_GT(num_recipes, 0u);
}

}  // namespace
