// How long a file and a function may be.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "repo/source_scan.h"

namespace {

constexpr size_t kMaxFileLines = 600, kMaxFunctionLines = 80, kMaxOpeningLines = 8;

// What may be longer, and why. A function is named "path: its head".
const std::map<std::string, std::string> kLongFiles = {};
const std::map<std::string, std::string> kLongFunctions = {};

std::vector<repo::SourceFile> all_sources() {
  std::vector<repo::SourceFile> files;
  for (const char* folder : {"src", "tests", "benchmarks", "examples"}) {
    for (repo::SourceFile& file : repo::sources_below(FURLONG_SOURCE_DIR, folder)) files.push_back(std::move(file));
  }
  return files;
}

TEST(Size, NoFileIsLongerThanTheLimit) {
  std::set<std::string> used;
  for (const repo::SourceFile& file : all_sources()) {
    if (file.lines.size() <= kMaxFileLines) continue;
    EXPECT_TRUE(kLongFiles.contains(file.path))
        << file.path << " has " << file.lines.size() << " lines; the limit is " << kMaxFileLines
        << ": cut it by subject, or move tables to an .inc file";
    used.insert(file.path);
  }
  for (const auto& [path, reason] : kLongFiles)
    EXPECT_TRUE(used.contains(path)) << path << " needs its exception no more";
}

TEST(Size, NoFunctionIsLongerThanTheLimit) {
  std::set<std::string> used;
  size_t num_functions = 0;
  for (const repo::SourceFile& file : all_sources()) {
    for (const repo::Function& function : repo::functions_of(file)) {
      ++num_functions;
      if (function.num_lines <= kMaxFunctionLines) continue;
      const std::string name = file.path + ":" + function.head;
      EXPECT_TRUE(kLongFunctions.contains(name))
          << file.path << ":" << function.first_line << ": " << function.head << " has " << function.num_lines
          << " lines; the limit is " << kMaxFunctionLines;
      used.insert(name);
    }
  }
  EXPECT_GT(num_functions, 200u) << "the scanner has gone blind";
  for (const auto& [name, reason] : kLongFunctions)
    EXPECT_TRUE(used.contains(name)) << name << " needs its exception no more";
}

// The first paragraph of the opening comment: a header may go on after it with what it promises. A test file needs
// none, it mirrors a file of src/ and its tests are sentences.
TEST(Size, AFileOpensWithWhatItOwnsInAFewLines) {
  for (const repo::SourceFile& file : all_sources()) {
    size_t lines = 0;
    while (lines < file.lines.size() && file.lines[lines].starts_with("// ")) ++lines;
    if (!file.path.ends_with("_test.cpp")) {
      EXPECT_GE(lines, 1u) << file.path << " does not open with a comment that says what it owns";
    }
    EXPECT_LE(lines, kMaxOpeningLines) << file.path << ": say it in " << kMaxOpeningLines
                                       << " lines; details may follow after a blank one";
  }
}

}  // namespace
