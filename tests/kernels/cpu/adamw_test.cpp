#include "kernels/cpu/adamw.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/cpu/each_target.h"

namespace kernels::cpu {
namespace {

const std::vector<int64_t> kSizes = {0, 1, 3, 7, 8, 9, 15, 17, 33, 4095, 4096, 4097, 70001};
const AdamwFactors kFactors{0.37f, 0.9f, 0.1f, 0.98f, 0.02f, 3.3f, 1e-8f, 0.999f, 2e-3f};

std::vector<float> normal_values(int64_t count, uint64_t seed) {
  base::Philox random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(random.next_normal());
  return values;
}

struct State {
  std::vector<float> master, m, v, grad;
  bool operator==(const State&) const = default;
};

State start(int64_t count) {
  State state{normal_values(count, 1), normal_values(count, 2), normal_values(count, 3), normal_values(count, 4)};
  for (float& x : state.v) x *= x;
  return state;
}

State updated(State state, const AdamwFactors& f) {
  adamw(state.master.data(), state.m.data(), state.v.data(), state.grad.data(),
        static_cast<int64_t>(state.master.size()), f);
  return state;
}

TEST(CpuAdamw, EachElementIsTheScalarFormulaToTheBitOnEveryTarget) {
  test::on_each_target([] {
    for (const int64_t count : kSizes) {
      State want = start(count);
      const AdamwFactors& f = kFactors;
      for (size_t i = 0; i < want.master.size(); ++i) {
        const float g = f.clip * want.grad[i];
        want.m[i] = f.beta1 * want.m[i] + f.rest1 * g;
        want.v[i] = f.beta2 * want.v[i] + (f.rest2 * g) * g;
        want.master[i] = f.keep * want.master[i] - (f.rate * want.m[i]) / (std::sqrt(want.v[i]) * f.root + f.eps);
      }
      EXPECT_TRUE(updated(start(count), f) == want) << count;
    }
  });
}

TEST(CpuAdamw, ThreadsDoNotChangeABit) {
  const int before = base::num_threads();
  const std::vector<float> values = normal_values(200003, 6);
  base::set_num_threads(1);
  const State alone = updated(start(50003), kFactors);
  const double sum = sum_of_squares(values.data(), 200003);
  for (const int threads : {2, 3}) {
    base::set_num_threads(threads);
    EXPECT_TRUE(updated(start(50003), kFactors) == alone) << threads;
    EXPECT_EQ(sum_of_squares(values.data(), 200003), sum) << threads;
  }
  base::set_num_threads(before);
}

TEST(CpuAdamw, AGradientThatIsNotFiniteStaysVisible) {
  State state = start(20);
  state.grad[3] = NAN;
  state.grad[19] = INFINITY;
  state = updated(state, kFactors);
  EXPECT_TRUE(std::isnan(state.master[3]) && std::isnan(state.master[19]));
  EXPECT_TRUE(std::isfinite(state.master[4]));
}

TEST(CpuSumOfSquares, StandsInTheStatedOrderOnEveryTarget) {
  test::on_each_target([] {
    for (const int64_t count : kSizes) {
      const std::vector<float> values = normal_values(count, 5);
      double want = 0;
      for (size_t at = 0; at < values.size(); at += 4096) {
        std::array<double, 8> lanes{};
        for (size_t i = at; i < std::min(values.size(), at + 4096); ++i) {
          lanes[(i - at) % 8] += double{values[i]} * double{values[i]};
        }
        double sum = 0;
        for (const double lane : lanes) sum += lane;
        want += sum;
      }
      EXPECT_EQ(sum_of_squares(values.data(), count), want) << count;
    }
  });
}

TEST(CpuSumOfSquares, IsBeyondTheRangeOfF32AndKeepsWhatIsNotFinite) {
  const std::vector<float> huge(4, 1e30f);
  EXPECT_EQ(sum_of_squares(huge.data(), 4), 4 * std::pow(double{1e30f}, 2));
  std::vector<float> values(5000, 1);
  values[4990] = NAN;
  EXPECT_TRUE(std::isnan(sum_of_squares(values.data(), 5000)));
  values[4990] = INFINITY;
  EXPECT_EQ(sum_of_squares(values.data(), 5000), INFINITY);
}

}  // namespace
}  // namespace kernels::cpu
