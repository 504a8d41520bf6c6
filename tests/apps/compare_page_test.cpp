// docs/compare.md shows real output: each console block is run again.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "apps/commands.h"
#include "base/files.h"
#include "checkpoint/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

struct Example {
  std::vector<std::string> arguments;  // after "furlong compare"
  std::string output;
};

std::vector<Example> examples() {
  std::vector<Example> found;
  std::istringstream page(base::read_file(fs::path(FURLONG_SOURCE_DIR) / "docs/compare.md"));
  bool inside = false;
  const std::string call = "$ furlong compare ";
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      inside = line == "```console";
    } else if (inside && line.starts_with(call)) {
      Example& example = found.emplace_back();
      std::istringstream words(line.substr(call.size()));
      for (std::string word; words >> word;) example.arguments.push_back(word);
    } else if (inside && !found.empty()) {
      found.back().output += line + "\n";
    }
  }
  return found;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The same words; numbers with a point may differ by what the order of sums on another processor makes of them.
void expect_same_text(const std::string& got, const std::string& want) {
  const std::vector<std::string> a = words_of(got), b = words_of(want);
  ASSERT_EQ(a.size(), b.size()) << got;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    ASSERT_NE(b[i].find('.'), std::string::npos) << a[i] << " is not " << b[i] << " in\n" << got;
    const double x = std::strtod(a[i].c_str(), nullptr), y = std::strtod(b[i].c_str(), nullptr);
    EXPECT_NEAR(x, y, 0.02 * std::abs(y)) << a[i] << " is not " << b[i];
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST(ComparePage, EveryExampleIsRealOutput) {
  const test::TemporaryFolder folder;
  const fs::path model = fs::path(FURLONG_SOURCE_DIR) / "tests/golden/model/edges";
  fs::copy(model, folder / "broken", fs::copy_options::recursive);
  const std::string config = base::read_file(model / "config.json");
  base::write_file_atomic(folder / "broken" / "config.json",
                          replaced(config, "\"sliding_window\": 8", "\"sliding_window\": 7"));
  const std::vector<Example> all = examples();
  ASSERT_GE(all.size(), 3u);
  for (const Example& example : all) {
    apps::Arguments arguments;
    for (const std::string& word : example.arguments)
      arguments.push_back(replaced(word, "@broken", "@" + (folder / "broken").string()));
    testing::internal::CaptureStdout();
    apps::run_compare({"furlong", arguments});
    std::fflush(stdout);
    expect_same_text(replaced(testing::internal::GetCapturedStdout(), folder.path().string() + "/", ""),
                     example.output);
  }
}

}  // namespace
