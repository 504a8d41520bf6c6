// For tests of kernels: running on every instruction set that was compiled and that this machine has, and input values.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/targets.h"
// after targets.h
#include <hwy/targets.h>

namespace test {

template <class Body>
void on_each_target(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

inline std::vector<float> noise(int64_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

inline void expect_close(const std::vector<float>& values, const std::vector<float>& wanted, float bound) {
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], bound) << i;
}

}  // namespace test
