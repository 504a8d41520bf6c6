// Functions of one value: against f64, and against what the CPU kernels make of the same values, to the bit.
#include "kernels/gpu/arithmetic.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/cpu/log_softmax.h"
#include "kernels/cpu/router.h"
#include "kernels/cpu/simulate.h"
#include "kernels/gpu/both_orders.h"

namespace {

using test::Floats;
using namespace kernels::gpu;

// Values of every magnitude between the limits, of one sign.
Floats spread(double from, double to, int64_t count, float sign) {
  Floats values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double at = static_cast<double>(i) / static_cast<double>(count - 1);
    values[static_cast<size_t>(i)] = sign * static_cast<float>(from * std::pow(to / from, at));
  }
  return values;
}

double step_of(double value) { return std::ldexp(1.0, std::max(std::ilogb(value) - 23, -149)); }

TEST(GpuArithmetic, ExponentialsAreThoseOfTheCpuKernels) {
  SKIP_WITHOUT_FMA();
  Floats logits = spread(1e-9, 110, 100000, -1);
  logits[0] = 0;  // the highest, so that the others are what the exponential is taken of
  Floats shifted = logits, weights = test::unset(100000);
  kernels::cpu::log_softmax_row(logits.data(), 100000, 1, shifted.data(), weights.data());
  Floats own;
  for (const float x : shifted) own.push_back(exponential(x));
  test::expect_same(own, weights, "exp");
}

TEST(GpuArithmetic, ExponentialsAreWithinTwoUnitsAndKeepNaN) {
  for (const float sign : {-1.0f, 1.0f}) {
    for (const float x : spread(1e-6, 87, 20000, sign)) {
      const double exact = std::exp(static_cast<double>(x));
      EXPECT_NEAR(exponential(x), exact, 2 * step_of(exact)) << x;
    }
  }
  EXPECT_TRUE(std::isnan(exponential(test::kNan)));
  EXPECT_EQ(exponential(-test::kInfinity), 0.0f);
  EXPECT_EQ(exponential(-104.5f), 0.0f);
  EXPECT_EQ(exponential(0), 1.0f);
}

TEST(GpuArithmetic, ScoresAreThoseOfTheCpuRouter) {
  SKIP_WITHOUT_FMA();
  Floats logits = spread(1e-6, 200, 1000, 1);
  const Floats negative = spread(1e-6, 250, 1000, -1);
  logits.insert(logits.end(), negative.begin(), negative.end());
  logits.insert(logits.end(), {0, -0.0f, -30, std::nextafter(-30.0f, 0.0f), test::kNan});
  for (const auto scoring : {kernels::cpu::Scoring::sqrtsoftplus, kernels::cpu::Scoring::sigmoid}) {
    Floats scores, own;
    for (const float x : logits) {
      kernels::cpu::RouterInput input;
      input.logits = &x, input.tokens = input.experts = input.per_token = 1;
      input.scoring = scoring, input.normalise = false;
      const int32_t expert = 0;
      kernels::cpu::expert_weights(input, &expert, &scores.emplace_back());
      own.push_back(scoring == kernels::cpu::Scoring::sigmoid ? router_sigmoid(x) : sqrt_softplus(x));
    }
    test::expect_same(own, scores, "score");
  }
}

TEST(GpuArithmetic, LogarithmsAreRoundedOnceFromF64) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> bits(0x00800000, 0x7f7fffff);  // normal numbers
  for (int i = 0; i < 200000; ++i) {
    const float x = i < 100000 ? float_of(bits(random)) : 1 + static_cast<float>(i - 100000);
    const double exact = std::log(static_cast<double>(x));
    EXPECT_NEAR(logarithm(x), exact, (0.5 + 1e-6) * step_of(exact == 0 ? 1e-30 : exact)) << x;
  }
  EXPECT_EQ(logarithm(1), 0.0f);
}

TEST(GpuArithmetic, RoundsToBf16AsTheCpuKernelDoes) {
  std::mt19937 random(2);
  Floats values, wanted, own;
  for (int i = 0; i < 100000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  values.insert(values.end(), {0, -0.0f, test::kNan, test::kInfinity, std::bit_cast<float>(0x7f7fffff),
                               std::bit_cast<float>(0x3f808000), std::bit_cast<float>(0x3f818000)});
  wanted = values;
  kernels::cpu::round_bf16(values.data(), wanted.data(), static_cast<int64_t>(values.size()));
  for (const float x : values) own.push_back(round_to_bf16(x));
  test::expect_same(own, wanted, "bf16");
}

}  // namespace
