#include "compare/differences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace compare {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<LogProbs> random_log_probs(uint64_t seed) {
  base::Philox random(seed);
  std::vector<LogProbs> all;
  for (const size_t length : {30u, 50u}) {
    LogProbs& one = all.emplace_back();
    one.push_back(std::nullopt);
    while (one.size() < length) one.push_back(static_cast<float>(-std::abs(2 * random.next_normal()) - 0.01));
  }
  return all;
}

TEST(Differences, CountsMeansAndPlaces) {
  const std::vector<LogProbs> a = {{std::nullopt, -1.0f, -2.0f, -3.0f}, {std::nullopt, -4.0f}};
  const std::vector<LogProbs> b = {{std::nullopt, -1.0f, -2.5f, -2.0f}, {std::nullopt, -4.25f}};
  const Differences d = compare_log_probs(a, b, 2);
  EXPECT_EQ(d.compared, 4);
  EXPECT_EQ(d.equal, 1);
  EXPECT_FALSE(d.all_equal());
  EXPECT_DOUBLE_EQ(d.absolute.mean, (0.5 + 1 + 0.25) / 4);
  EXPECT_DOUBLE_EQ(d.mean_signed, (0.5 - 1 + 0.25) / 4);
  EXPECT_EQ(d.absolute.p50, 0.25);
  EXPECT_EQ(d.absolute.max, 1);
  ASSERT_EQ(d.worst.size(), 2u);
  EXPECT_EQ(d.worst[0].sequence, 0u);
  EXPECT_EQ(d.worst[0].position, 3);
  EXPECT_EQ(d.worst[1].position, 2);
}

TEST(Differences, TheLastBitCounts) {
  const float x = -1.2345678f;
  const std::vector<LogProbs> a = {{std::nullopt, x}}, b = {{std::nullopt, std::nextafter(x, 0.0f)}};
  EXPECT_TRUE(compare_log_probs(a, a, 1).all_equal());
  EXPECT_FALSE(compare_log_probs(a, b, 1).all_equal());
  EXPECT_EQ(compare_log_probs(a, b, 1).worst.size(), 1u);
}

// lp-08: engines write an impossible token as -9999, as the lowest f32, or leave it out.
TEST(Differences, ImpossibleTokensAndMissingOnesAreCountedNotCompared) {
  const float lowest = std::numeric_limits<float>::lowest();
  const std::vector<LogProbs> a = {{std::nullopt, -9999.0f, -1.0f, -2.0f, -9999.0f}};
  const std::vector<LogProbs> b = {{std::nullopt, lowest, std::nullopt, -2.0f, -3.0f}};
  const Differences d = compare_log_probs(a, b, 9);
  EXPECT_EQ(d.impossible, 1);
  EXPECT_EQ(d.missing, 1);
  EXPECT_EQ(d.compared, 2);
  EXPECT_EQ(d.absolute.max, 9996) << "impossible on one side only is a difference";
}

TEST(Differences, ANanDoesNotHideInTheMean) {
  const std::vector<LogProbs> a = {{std::nullopt, NAN, -1.0f}}, b = {{std::nullopt, -1.0f, -1.0f}};
  const Differences d = compare_log_probs(a, b, 9);
  EXPECT_EQ(d.absolute.nonfinite, 1);
  EXPECT_EQ(d.worst.at(0).position, 1);
  EXPECT_FALSE(d.all_equal());
}

TEST(Patterns, EqualAndUnrelatedListsShowNone) {
  const std::vector<LogProbs> a = random_log_probs(1), b = random_log_probs(2);
  EXPECT_THAT(patterns(a, a), IsEmpty());
  EXPECT_THAT(patterns(a, b), IsEmpty());
}

// lp-06
TEST(Patterns, AShiftByOnePositionIsNamed) {
  const std::vector<LogProbs> a = random_log_probs(1);
  std::vector<LogProbs> later = a, earlier = a;
  for (size_t s = 0; s < a.size(); ++s) {
    for (size_t t = 1; t < a[s].size(); ++t) {
      later[s][t] = t > 1 ? a[s][t - 1] : -0.5f;
      earlier[s][t] = t + 1 < a[s].size() ? a[s][t + 1] : -0.5f;
    }
  }
  EXPECT_THAT(patterns(a, later), ElementsAre(HasSubstr("later by one position")));
  EXPECT_THAT(patterns(a, earlier), ElementsAre(HasSubstr("earlier by one position")));
}

// lp-02: log_softmax(x) / 0.6 instead of log_softmax(x / 0.6)
TEST(Patterns, ATemperatureAfterTheSoftmaxIsNamed) {
  const std::vector<LogProbs> a = random_log_probs(1);
  std::vector<LogProbs> b = a;
  for (LogProbs& one : b) {
    for (auto& value : one) {
      if (value) *value /= 0.6f;
    }
  }
  EXPECT_THAT(patterns(a, b), ElementsAre(HasSubstr("a temperature of 0.6 after the softmax")));
}

// lp-09
TEST(Patterns, LogProbsKeptIn16BitsAreNamed) {
  const std::vector<LogProbs> a = random_log_probs(1);
  std::vector<LogProbs> b = a;
  for (LogProbs& one : b) {
    for (auto& value : one) {
      if (value) *value = std::bit_cast<float>(std::bit_cast<uint32_t>(*value) & 0xFFFF0000u);
    }
  }
  EXPECT_THAT(patterns(a, b), ElementsAre(HasSubstr("every log-prob of B is a bf16 number")));
  EXPECT_THAT(patterns(b, a), ElementsAre(HasSubstr("every log-prob of A is a bf16 number")));
}

}  // namespace
}  // namespace compare
