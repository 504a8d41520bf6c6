// Memory safety on odd sizes and the golden values, without torch: on every instruction set that this machine has.
#include "kernels/cpu/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/each_target.h"

namespace {

using kernels::cpu::BlockFormat;

std::vector<float> simulated(std::vector<float> values, int64_t group, BlockFormat format) {
  std::vector<float> result(values.size());
  kernels::cpu::simulate_groups({values.data(), result.data(), 1, static_cast<int64_t>(values.size()), group}, format);
  return result;
}

TEST(SimulateGroupsOnCpu, GoldenValuesOfTheSpecOnEveryInstructionSet) {  // appendix B
  test::on_each_target([] {
    using Values = std::vector<float>;
    EXPECT_EQ(simulated({3.0f, 1.0f, 0.3f}, 64, BlockFormat::e4m3), (Values{3.0f, 1.0f, 0.3125f}));
    EXPECT_EQ(simulated({3.5f}, 64, BlockFormat::e4m3), (Values{3.5f}));
    EXPECT_EQ(simulated({3.515625f}, 64, BlockFormat::e4m3), (Values{3.5f}));
    EXPECT_EQ(simulated({3.0f, 1.25f, 1.3f}, 32, BlockFormat::e2m1), (Values{3.0f, 1.0f, 1.5f}));
  });
}

TEST(SimulateGroupsOnCpu, EveryInstructionSetGivesTheSameBitsOnOddSizes) {
  for (const int64_t columns : {0, 1, 7, 8, 9, 31, 48, 129}) {
    for (const int64_t group : {1, 5, 32, 64}) {
      const std::vector<float> values = test::noise(3 * columns, 11);
      std::vector<std::vector<float>> results;
      test::on_each_target([&] {
        for (const BlockFormat format : {BlockFormat::e4m3, BlockFormat::e2m1}) {
          std::vector<float> result(values.size());
          kernels::cpu::simulate_groups({values.data(), result.data(), 3, columns, group}, format);
          results.push_back(result);
        }
      });
      for (size_t i = 2; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 2]) << columns << " by " << group;
    }
  }
}

TEST(RoundBf16OnCpu, EveryInstructionSetRoundsToNearestEven) {
  const float ulp = std::ldexp(1.0f, -7);  // of bf16 at 1
  test::on_each_target([&] {
    for (const int64_t count : {0, 1, 3, 8, 17}) {
      std::vector<float> values(static_cast<size_t>(count), 1 + ulp / 2), result(values.size());
      kernels::cpu::round_bf16(values.data(), result.data(), count);
      for (const float value : result) EXPECT_EQ(value, 1.0f);
    }
    const std::vector<float> values = {1 + 1.5f * ulp, -1 - ulp * 0.51f, -0.0f, INFINITY, 3.4e38f};
    std::vector<float> result(values.size());
    kernels::cpu::round_bf16(values.data(), result.data(), 5);
    EXPECT_EQ(result, (std::vector<float>{1 + 2 * ulp, -1 - ulp, -0.0f, INFINITY, INFINITY}));
    EXPECT_TRUE(std::signbit(result[2]));
  });
}

TEST(HadamardOnCpu, EveryInstructionSetGivesTheSameBitsAndTheFirstRowOfTheMatrixIsASum) {
  for (const int64_t dim : {1, 2, 4, 8, 16, 64, 128}) {
    const std::vector<float> values = test::noise(3 * dim, 5);
    std::vector<std::vector<float>> results;
    test::on_each_target([&] {
      std::vector<float> result(values.size());
      kernels::cpu::hadamard_e2m1(values.data(), result.data(), 3, dim);
      results.push_back(result);
    });
    for (const auto& result : results) EXPECT_EQ(result, results[0]) << dim;
  }
  const std::vector<float> ones(64, 0.75f);  // only the first coefficient: 64 * 0.75 / 8
  std::vector<float> result(64), wanted(64, 0.0f);
  wanted[0] = 6.0f;
  kernels::cpu::hadamard_e2m1(ones.data(), result.data(), 1, 64);
  EXPECT_EQ(result, wanted);
}

}  // namespace
