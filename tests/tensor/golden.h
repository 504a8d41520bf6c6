// Golden data of the tensor tests: JSON lines, bytes in hex, and comparison of f32 tensors bit by bit.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "tensor/tensor.h"

namespace test {

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(FURLONG_SOURCE_DIR) / "tests/golden" / name;
}

inline std::vector<base::Json> json_lines(const std::string& name) {
  std::istringstream text(base::read_file(golden(name)));
  std::vector<base::Json> result;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) result.push_back(base::parse_json(line, name));
  }
  return result;
}

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

inline at::Tensor byte_tensor(const std::string& bytes, const std::vector<int64_t>& shape,
                              at::ScalarType type = at::kByte) {
  return at::from_blob(const_cast<char*>(bytes.data()), shape, at::TensorOptions(type)).clone();
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

// A JSON number, or "nan", or "-0.0".
inline float to_float(const base::Json& json) {
  return json.is_string() ? std::stof(json.get<std::string>()) : json.get<float>();
}

}  // namespace test
