// Reads tests/golden/actor/rl_vectors.jsonl: golden vectors of the RL mathematics, made in f64 with gradients by
// autograd (definitions and tolerances: its README). "nan", "inf" and "-inf" are strings there; ragged arrays are lists
// per sample.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/tensor.h"

namespace actor_test {

using base::Json;
using tensor::Tensor;

// Of the vectors' README: |difference| <= limit * max|field|, for scalars and reduced values limit * max(1,
// max|field|).
inline constexpr double kLimitF64 = 1e-12;
inline constexpr double kLimitF32 = 2e-6;

struct Vector {
  std::string id;
  Json inputs, expected;
};

inline std::vector<Vector> vectors_of(const std::string& kind) {
  std::ifstream file(FURLONG_SOURCE_DIR "/tests/golden/actor/rl_vectors.jsonl");
  std::vector<Vector> found;
  for (std::string line; std::getline(file, line);) {
    const Json json = base::parse_json(line, "rl_vectors.jsonl");
    if (json["kind"] == kind) found.push_back({json["id"], json["inputs"], json["expected"]});
  }
  EXPECT_FALSE(found.empty()) << "no vectors of kind " << kind;
  return found;
}

inline double number(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const double infinity = std::numeric_limits<double>::infinity();
  return json == "nan" ? std::nan("") : json == "inf" ? infinity : -infinity;
}

inline void flatten_into(const Json& json, std::vector<double>& out) {
  if (!json.is_array()) return out.push_back(number(json));
  for (const Json& item : json) flatten_into(item, out);
}

inline std::vector<double> flatten(const Json& json) {
  std::vector<double> out;
  flatten_into(json, out);
  return out;
}

inline Tensor to_tensor(const std::vector<double>& values, at::ScalarType dtype) {
  return at::tensor(values, at::kDouble).to(dtype);
}
// A template, so that a braced list is never taken for JSON.
template <std::same_as<Json> J>
Tensor to_tensor(const J& json, at::ScalarType dtype) {
  return to_tensor(flatten(json), dtype);
}

// scale_floor: 1 for summed scalars, entropies and log-probs, 0 for gradients and values per token.
inline void expect_near(const std::vector<double>& got, const Json& want_json, double limit, double scale_floor,
                        const std::string& what) {
  const std::vector<double> want = flatten(want_json);
  ASSERT_EQ(got.size(), want.size()) << what;
  double scale = scale_floor;
  for (double x : want) scale = std::max(scale, std::isfinite(x) ? std::abs(x) : 0.0);
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i])) {
      EXPECT_LE(std::abs(got[i] - want[i]), limit * scale) << what << "[" << i << "]: " << got[i] << " for " << want[i];
    } else {
      EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
          << what << "[" << i << "]: " << got[i];
    }
  }
}

inline std::vector<double> values_of(const Tensor& tensor) {
  const Tensor flat = tensor.detach().to(at::kDouble).contiguous().view({-1});
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

inline void expect_near(const Tensor& got, const Json& want, double limit, double scale_floor,
                        const std::string& what) {
  expect_near(values_of(got), want, limit, scale_floor, what);
}

}  // namespace actor_test
