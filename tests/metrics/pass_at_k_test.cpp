#include "metrics/pass_at_k.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/json.h"

namespace metrics {
namespace {

TEST(PassAtK, EqualsTheGoldenVectors) {
  // Vectors in f64 with 17 digits; the product of up to 1000 factors rounds each to 2^-53.
  constexpr double kTolerance = 1e-12;
  const std::string path = FURLONG_SOURCE_DIR "/tests/golden/metrics/pass_at_k.jsonl";
  std::ifstream file(path);
  int vectors = 0;
  for (std::string line; std::getline(file, line); ++vectors) {
    const base::Json vector = base::parse_json(line, path);
    const base::Json& in = vector["inputs"];
    for (size_t i = 0; i < in["k"].size(); ++i) {
      const double expected = vector["expected"]["pass"][i];
      const double got = pass_at_k(in["n"], in["c"], in["k"][i]);
      EXPECT_NEAR(got, expected, kTolerance) << vector["id"] << " k " << in["k"][i];
      if (expected == 0 || expected == 1) {
        EXPECT_EQ(got, expected);
      }
    }
  }
  EXPECT_EQ(vectors, 8);
}

TEST(PassAtK, IsTheShareOfSubsetsWithARightAnswer) {
  // All subsets of size k of n answers of which the first c are right, counted.
  for (int n = 1; n <= 8; ++n) {
    for (int c = 0; c <= n; ++c) {
      std::vector<double> subsets(n + 1), hits(n + 1);
      for (int set = 1; set < 1 << n; ++set) {
        const int size = __builtin_popcount(set);
        ++subsets[size];
        if ((set & ((1 << c) - 1)) != 0) ++hits[size];
      }
      for (int k = 1; k <= n; ++k)
        EXPECT_NEAR(pass_at_k(n, c, k), hits[k] / subsets[k], 1e-14) << n << " " << c << " " << k;
    }
  }
}

TEST(PassAtK, RefusesWhatCannotBe) {
  EXPECT_THROW(pass_at_k(4, 5, 1), base::Error);
  EXPECT_THROW(pass_at_k(4, -1, 1), base::Error);
  EXPECT_THROW(pass_at_k(4, 2, 5), base::Error);
  EXPECT_THROW(pass_at_k(4, 2, 0), base::Error);
  EXPECT_THROW(pass_at_k(0, 0, 1), base::Error);
  EXPECT_EQ(usual_ks(8), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(usual_ks(6), (std::vector<int64_t>{1, 2, 4}));
}

}  // namespace
}  // namespace metrics
