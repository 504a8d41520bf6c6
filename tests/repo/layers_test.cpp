// Who may include whom (LAYERS), how an include is spelled, and where torch is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "repo/source_scan.h"

namespace {

namespace fs = std::filesystem;
using repo::SourceFile;

const fs::path kRoot = FURLONG_SOURCE_DIR;

struct Layers {
  std::vector<std::string> order;                    // as listed, lowest first
  std::map<std::string, std::set<std::string>> may;  // module -> what it may include
};

Layers read_layers() {
  Layers layers;
  static const std::regex entry(R"(^([a-z_/]+):(.*)$)"), word("[a-z_/]+");
  for (const std::string& line : repo::split_lines(base::read_file(kRoot / "LAYERS"))) {
    std::smatch match;
    if (!std::regex_match(line, match, entry)) continue;
    layers.order.push_back(match[1]);
    const std::string deps = match[2];
    layers.may[match[1]] = {std::sregex_token_iterator(deps.begin(), deps.end(), word), std::sregex_token_iterator()};
  }
  return layers;
}

struct Include {
  std::string name;
  bool quoted = false;
  size_t line = 0;
};

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex include(R"rx(^\s*#\s*include\s*([<"])([^>"]+)[>"].*$)rx");
  std::vector<Include> found;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    std::smatch match;
    if (std::regex_match(file.lines[i], match, include)) found.push_back({match[2], match[1] == "\"", i + 1});
  }
  return found;
}

// The innermost listed module that holds a file: "kernels/cpu/pack.h" -> "kernels/cpu", "kernels/linear.h" ->
// "kernels".
std::string module_of(const Layers& layers, std::string path) {
  while (path.find('/') != std::string::npos) {
    path.resize(path.rfind('/'));
    if (layers.may.contains(path)) return path;
  }
  return path;
}

std::string below_src(const SourceFile& file) { return file.path.substr(std::string("src/").size()); }

const std::vector<SourceFile>& src() {
  static const std::vector<SourceFile> files = repo::sources_below(kRoot, "src");
  return files;
}

bool has_torch(const Layers& layers, const std::string& module) {
  return module == "tensor" || layers.may.at(module).contains("tensor");
}

TEST(Layers, AModuleMayIncludeOnlyWhatIsListedBelowIt) {
  const Layers layers = read_layers();
  ASSERT_GT(layers.order.size(), 10u);
  std::set<std::string> below;
  for (const std::string& module : layers.order) {
    for (const std::string& dep : layers.may.at(module)) {
      EXPECT_TRUE(below.contains(dep)) << "LAYERS: " << module << " may include " << dep
                                       << ", which does not stand above it in the list";
    }
    EXPECT_TRUE(below.insert(module).second) << "LAYERS lists " << module << " twice";
  }
}

TEST(Layers, SiblingsNeverIncludeEachOther) {
  const Layers layers = read_layers();
  const std::vector<std::string> siblings = {"rollout", "actor", "rewards", "checkpoint"};
  for (const std::string& module : siblings) {
    for (const std::string& other : siblings)
      EXPECT_FALSE(layers.may.at(module).contains(other)) << module << " and " << other;
  }
}

TEST(Layers, EveryFolderOfSrcIsListed) {
  const Layers layers = read_layers();
  for (const SourceFile& file : src())
    EXPECT_TRUE(layers.may.contains(module_of(layers, below_src(file))))
        << file.path << ": its folder is not in LAYERS";
}

TEST(Layers, EveryIncludeIsAListedEdgeSpelledFromSrc) {
  const Layers layers = read_layers();
  for (const SourceFile& file : src()) {
    const std::string module = module_of(layers, below_src(file));
    for (const Include& include : includes_of(file)) {
      const std::string place = file.path + ":" + std::to_string(include.line) + ": \"" + include.name + "\"";
      if (!include.quoted) {
        EXPECT_FALSE(fs::exists(kRoot / "src" / include.name)) << place << " is ours: write it in quotes";
        continue;
      }
      EXPECT_TRUE(fs::exists(kRoot / "src" / include.name)) << place << " is not spelled from src/";
      const std::string target = module_of(layers, include.name);
      EXPECT_TRUE(target == module || layers.may.at(module).contains(target))
          << place << ": LAYERS does not let " << module << " include " << target;
    }
  }
}

TEST(Layers, TorchIsIncludedByTwoHeaders) {
  static const std::regex torch("^(torch|ATen|c10|caffe2)/.*");
  // What tensor.h does not bring and must be included by name, where it is used.
  const std::map<std::string, std::string> allowed = {
      {"ATen/Parallel.h", ""},  // any file: costs nothing beyond tensor.h
      {"torch/csrc/autograd/functions/utils.h", "src/model/recompute.cpp"},
  };
  for (const SourceFile& file : src()) {
    if (file.path == "src/tensor/tensor.h" || file.path == "src/tensor/autograd.h") continue;
    for (const Include& include : includes_of(file)) {
      const auto exception = allowed.find(include.name);
      if (exception != allowed.end() && (exception->second.empty() || exception->second == file.path)) continue;
      EXPECT_FALSE(std::regex_match(include.name, torch))
          << file.path << ":" << include.line << ": <" << include.name << ">: include \"tensor/tensor.h\" instead";
    }
  }
}

TEST(Layers, ModulesWithoutTensorsDoNotNameTorch) {
  const Layers layers = read_layers();
  for (const std::string module : {"base", "metrics", "data", "rewards", "report"})
    EXPECT_FALSE(has_torch(layers, module)) << module;
  static const std::regex torch(R"(\b(at|torch|c10)::)");
  for (const SourceFile& file : src()) {
    if (has_torch(layers, module_of(layers, below_src(file)))) continue;
    std::smatch match;
    EXPECT_FALSE(std::regex_search(file.code, match, torch))
        << file.path << ":" << repo::line_of(file.code, static_cast<size_t>(match.position())) << ": " << match.str()
        << " in a module without torch";
  }
}

TEST(Layers, TheNamespaceIsTheFolder) {
  static const std::regex opened(R"(^namespace ([a-z_:]+) \{.*)"), slash("/");
  const Layers layers = read_layers();
  for (const SourceFile& file : src()) {
    const std::string path = below_src(file);
    const std::string module = std::regex_replace(module_of(layers, path), slash, "::");
    const std::string folder = std::regex_replace(path.substr(0, path.rfind('/')), slash, "::");
    for (size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_match(file.lines[i], match, opened) || match[1] == "detail") continue;
      EXPECT_TRUE(match[1] == module || match[1] == folder) << file.path << ":" << i + 1 << ": " << match[1];
      break;  // what is nested in it has a name of its own
    }
  }
}

}  // namespace
