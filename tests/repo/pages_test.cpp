// What the pages quote and name exists: code blocks are passages of the files that they name, paths are paths.
#include <gtest/gtest.h>

#include <set>

#include "repo/source_scan.h"

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = FURLONG_SOURCE_DIR;

struct Page {
  std::string name;
  std::vector<std::string> lines;
};

std::vector<Page> pages() {
  std::vector<fs::path> paths = {kRoot / "README.md", kRoot / "ARCHITECTURE.md"};
  for (const auto& entry : fs::directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  std::vector<Page> found;
  for (const fs::path& path : paths) {
    found.push_back({path.lexically_relative(kRoot).generic_string(), repo::split_lines(base::read_file(path))});
  }
  return found;
}

// A fenced block: ```cpp src/a.h has language "cpp" and source "src/a.h".
struct Block {
  std::string language, source, text;
  size_t line = 0;
};

std::vector<Block> blocks_of(const Page& page) {
  static const std::regex fence(R"(^```\s*(\w*)\s*(\S*)\s*$)");
  std::vector<Block> blocks;
  bool open = false;
  for (size_t i = 0; i < page.lines.size(); ++i) {
    std::smatch match;
    if (std::regex_match(page.lines[i], match, fence)) {
      if (!open) blocks.push_back({match[1], match[2], {}, i + 1});
      open = !open;
    } else if (open) {
      blocks.back().text += page.lines[i] + "\n";
    }
  }
  EXPECT_FALSE(open) << page.name << ": a code block has no end";
  return blocks;
}

// Whether `passage` stands in `text` as whole lines.
bool holds(const std::string& text, const std::string& passage) {
  for (size_t at = text.find(passage); at != std::string::npos; at = text.find(passage, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return true;
  }
  return false;
}

TEST(Pages, CodeBlocksArePassagesOfTheFilesThatTheyName) {
  size_t num_quotes = 0;
  for (const Page& page : pages()) {
    for (const Block& block : blocks_of(page)) {
      const std::string place = page.name + ":" + std::to_string(block.line);
      EXPECT_TRUE(block.language != "cpp" || !block.source.empty())
          << place << ": name the file that this code is from: ```cpp path/from/the/root";
      if (block.source.empty()) continue;
      ++num_quotes;
      ASSERT_TRUE(fs::is_regular_file(kRoot / block.source)) << place << ": there is no " << block.source;
      EXPECT_FALSE(block.text.empty()) << place;
      EXPECT_TRUE(holds(base::read_file(kRoot / block.source), block.text))
          << place << ": this is not in " << block.source << " any more:\n"
          << block.text;
    }
  }
  EXPECT_GE(num_quotes, 5u) << "the search for quotes has gone blind";
}

// Top folders, and the folders of src/, whose names paths in pages begin with.
std::set<std::string> known_heads() {
  std::set<std::string> heads;
  for (const fs::path& folder : {kRoot, kRoot / "src"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_directory()) heads.insert(entry.path().filename().string());
    }
  }
  for (const char* not_ours : {"build", "runs", ".venv", ".git"}) heads.erase(not_ours);
  return heads;
}

// "rollout/sampler.{h,cpp}" -> both.
std::vector<std::string> expanded(const std::string& path) {
  const size_t open = path.find('{'), close = path.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {path};
  std::vector<std::string> all;
  static const std::regex comma("[^,]+");
  const std::string inside = path.substr(open + 1, close - open - 1);
  for (auto at = std::sregex_iterator(inside.begin(), inside.end(), comma); at != std::sregex_iterator(); ++at) {
    all.push_back(path.substr(0, open) + at->str() + path.substr(close + 1));
  }
  return all;
}

bool exists(const std::string& path) {
  for (const fs::path& folder : {kRoot, kRoot / "src"}) {
    for (const char* ending : {"", ".h", ".cpp"}) {
      if (fs::exists(folder / (path + ending))) return true;
    }
  }
  return false;
}

// Words in backticks that begin with a folder of ours; those with <placeholders> or patterns are not paths.
std::vector<std::string> paths_in(const std::string& line, const std::set<std::string>& heads) {
  static const std::regex quoted("`([^`]+)`"), word(R"([^\s]+)"), path(R"([A-Za-z0-9_.{},/-]+)");
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(line.begin(), line.end(), quoted); at != std::sregex_iterator(); ++at) {
    const std::string inside = (*at)[1];
    for (auto w = std::sregex_iterator(inside.begin(), inside.end(), word); w != std::sregex_iterator(); ++w) {
      const std::string text = w->str();
      const size_t slash = text.find('/');
      if (slash == std::string::npos || !std::regex_match(text, path) || !heads.contains(text.substr(0, slash)))
        continue;
      for (const std::string& one : expanded(text)) found.push_back(one);
    }
  }
  return found;
}

TEST(Pages, EveryPathThatIsNamedExists) {
  const std::set<std::string> heads = known_heads();
  size_t num_paths = 0;
  for (const Page& page : pages()) {
    for (size_t i = 0; i < page.lines.size(); ++i) {
      for (const std::string& path : paths_in(page.lines[i], heads)) {
        ++num_paths;
        EXPECT_TRUE(exists(path)) << page.name << ":" << i + 1 << ": there is no " << path;
      }
    }
  }
  EXPECT_GT(num_paths, 60u) << "the search for paths has gone blind";
}

TEST(Pages, TheSearchSeesPathsInTextAndCommands) {
  const std::set<std::string> heads = {"src", "rollout", "recipes"};
  EXPECT_EQ(paths_in("see `rollout/sampler.{h,cpp}`, `kernels/<op>.h` and `furlong train recipes/demo.toml`", heads),
            (std::vector<std::string>{"rollout/sampler.h", "rollout/sampler.cpp", "recipes/demo.toml"}));
  EXPECT_TRUE(exists("kernels/router"));
  EXPECT_FALSE(exists("kernels/no_such_op"));
}

TEST(Pages, AQuoteMustBeWholeLines) {
  EXPECT_TRUE(holds("a\nb\nc\n", "b\nc\n"));
  EXPECT_FALSE(holds("a\nxb\nc\n", "b\nc\n"));
}

}  // namespace
