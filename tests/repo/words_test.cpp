// Names, spelling, and what must not stand in a source at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "repo/source_scan.h"

namespace {

namespace fs = std::filesystem;
using repo::SourceFile;

const fs::path kRoot = FURLONG_SOURCE_DIR;
// Words that name nothing: whatever stands behind them has a better name.
const std::set<std::string> kEmptyWords = {"manager", "helper",  "helpers",   "util",   "utils",
                                           "impl",    "handler", "processor", "wrapper"};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::vector<SourceFile> below(const std::vector<std::string>& folders) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    for (SourceFile& file : repo::sources_below(kRoot, folder)) files.push_back(std::move(file));
  }
  return files;
}

void expect_telling_name(const std::string& name, const std::string& place) {
  for (const std::string& word : repo::words_of(name)) {
    EXPECT_FALSE(kEmptyWords.contains(lower(word)))
        << place << ": \"" << name << "\": find a name without \"" << word << "\"";
  }
}

TEST(Words, FilesAndTypesHaveTellingNames) {
  static const std::regex type(R"(\b(?:class|struct|union|enum class|enum|concept|using|namespace)\s+([A-Za-z_]\w*))");
  for (const SourceFile& file : below({"src", "tests", "benchmarks"})) {
    expect_telling_name(fs::path(file.path).stem().string(), file.path);
    for (auto at = std::sregex_iterator(file.code.begin(), file.code.end(), type); at != std::sregex_iterator(); ++at) {
      expect_telling_name(
          (*at)[1], file.path + ":" + std::to_string(repo::line_of(file.code, static_cast<size_t>(at->position()))));
    }
  }
}

TEST(Words, FileNamesAreSnakeCase) {
  static const std::regex snake(R"([a-z0-9_]+\.(h|cpp|cu))");
  for (const SourceFile& file : below({"src", "tests", "benchmarks"})) {
    EXPECT_TRUE(std::regex_match(fs::path(file.path).filename().string(), snake)) << file.path;
  }
}

TEST(Words, NoEnvironmentVariableIsRead) {
  static const std::regex environment(R"(\b(secure_getenv|getenv|setenv|putenv|unsetenv|environ)\b)");
  for (const SourceFile& file : below({"src"})) {
    std::smatch match;
    EXPECT_FALSE(std::regex_search(file.code, match, environment))
        << file.path << ":" << repo::line_of(file.code, static_cast<size_t>(match.position())) << ": " << match.str()
        << ": make it a setting";
  }
}

// But for tests about text, where the characters themselves say more than their codes.
TEST(Words, SourcesAreAscii) {
  for (const SourceFile& file : below({"src", "tests", "benchmarks", "examples"})) {
    if (file.path.starts_with("tests/data/")) continue;
    const auto bad =
        std::find_if(file.text.begin(), file.text.end(), [](char c) { return static_cast<unsigned char>(c) >= 128; });
    EXPECT_EQ(bad, file.text.end()) << file.path << ":"
                                    << repo::line_of(file.text, static_cast<size_t>(bad - file.text.begin()))
                                    << ": write other characters as \\u or \\x escapes";
  }
}

TEST(Words, HeadersAreGuardedByPragmaOnce) {
  for (const SourceFile& file : below({"src", "tests"})) {
    if (!file.path.ends_with(".h")) continue;
    // Highway includes an _inl.h once for each instruction set: its guard toggles.
    const std::string guard = file.path.ends_with("_inl.h") ? " == defined(HWY_TARGET_TOGGLE)" : "#pragma once";
    const auto guards = [&](const std::string& line) { return line.ends_with(guard); };
    EXPECT_EQ(std::count_if(file.lines.begin(), file.lines.end(), guards), 1) << file.path;
  }
}

// "DecodeStepMatchesPrefill" says what holds; "Test1", "Basic" or "TopKWorks" do not.
TEST(Words, TestsAreNamedAsClaims) {
  static const std::regex test(R"(\b(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+),\s*(\w+)\))");
  static const std::set<std::string> empty = {"test", "basic", "simple", "works", "misc", "case"};
  size_t num_tests = 0;
  for (const SourceFile& file : below({"tests"})) {
    for (auto at = std::sregex_iterator(file.code.begin(), file.code.end(), test); at != std::sregex_iterator();
         ++at, ++num_tests) {
      const std::string name = (*at)[2], place = file.path + ": " + name;
      const std::vector<std::string> words = repo::words_of(name);
      EXPECT_GE(words.size(), 2u) << place << " is too short to be a claim";
      EXPECT_FALSE(empty.contains(lower(words.front())) || lower(words.back()) == "works")
          << place << " claims nothing";
    }
  }
  EXPECT_GT(num_tests, 40u) << "the search for tests has gone blind";
}

TEST(Words, NothingUnfinishedStandsInSrc) {
  static const std::regex mark(R"(\b(TODO|FIXME|XXX)\b)");
  for (const SourceFile& file : below({"src"})) EXPECT_FALSE(std::regex_search(file.text, mark)) << file.path;
}

// What git ignores is not ours: build folders, the virtual environment, runs.
bool ignored(const fs::path& path) {
  static const std::set<std::string> names = {".git", "build", ".venv", "runs", "__pycache__", "shared"};
  return names.contains(path.filename().string());
}

TEST(Words, NoFileNamesAMachineOrAPackageHost) {
  const std::regex machine("/(work|root|home/[a-z]+)/"), host(R"(//[a-z0-9.-]*(pypi|pythonhosted|debian)\b)");
  constexpr uintmax_t kMaxBytes = 3 << 20;
  size_t num_files = 0;
  for (auto at = fs::recursive_directory_iterator(kRoot); at != fs::recursive_directory_iterator(); ++at) {
    if (ignored(at->path())) at.disable_recursion_pending();
    if (ignored(at->path()) || !at->is_regular_file()) continue;
    const std::string path = at->path().lexically_relative(kRoot).generic_string();
    EXPECT_LE(at->file_size(), kMaxBytes) << path << " is too large to be kept here";
    // Golden data are quoted from elsewhere, and some of it is binary.
    if (path.starts_with("tests/golden/") || at->file_size() > kMaxBytes) continue;
    ++num_files;
    for (const std::string& line : repo::split_lines(base::read_file(at->path()))) {
      EXPECT_FALSE(std::regex_search(line, machine)) << path << ": a path of one machine: " << line;
      EXPECT_FALSE(std::regex_search(line, host)) << path << ": name the package, not the host: " << line;
    }
  }
  EXPECT_GT(num_files, 50u);
}

}  // namespace
