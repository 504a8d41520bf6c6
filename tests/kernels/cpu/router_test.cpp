// Scores, choices, weights and their gradient against loops in f64 and the golden values of the specification.
#include "kernels/cpu/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "kernels/cpu/each_target.h"

namespace {

using kernels::cpu::RouterInput;
using kernels::cpu::Scoring;

constexpr Scoring kScorings[] = {Scoring::sqrtsoftplus, Scoring::sigmoid, Scoring::softmax};
// exp and log1p of Highway are within 1 and 2 units in the last place; a division, a sum, a root and a product follow.
constexpr double kScoreError = 5 * 0x1p-23;
constexpr double kSmallest = 0x1p-149;  // step of the numbers below the normal ones

double score(Scoring scoring, const std::vector<float>& logits, size_t e) {
  const double l = logits[e];
  if (scoring == Scoring::sigmoid) return 1 / (1 + std::exp(-l));
  if (scoring == Scoring::sqrtsoftplus) return std::sqrt(std::log1p(std::exp(-std::abs(l))) + std::max(l, 0.0));
  double sum = 0;
  for (const float other : logits) sum += std::exp(other - l);
  return 1 / sum;
}

RouterInput input_of(const std::vector<float>& logits, int64_t experts, int64_t per_token, Scoring scoring) {
  RouterInput input;
  input.logits = logits.data();
  input.tokens = static_cast<int64_t>(logits.size()) / experts;
  input.experts = experts;
  input.per_token = per_token;
  input.scoring = scoring;
  return input;
}

std::vector<int32_t> best(const RouterInput& input, const std::vector<float>& bias) {
  std::vector<int32_t> expert(static_cast<size_t>(input.tokens * input.per_token), -1);
  kernels::cpu::best_experts(input, bias.data(), expert.data());
  return expert;
}

std::vector<float> weights(const RouterInput& input, const std::vector<int32_t>& expert) {
  std::vector<float> weight(expert.size(), -1);
  kernels::cpu::expert_weights(input, expert.data(), weight.data());
  return weight;
}

std::vector<float> gradient(const RouterInput& input, const std::vector<int32_t>& expert,
                            const std::vector<float>& dweight) {
  std::vector<float> dlogits(static_cast<size_t>(input.tokens * input.experts), -1);
  kernels::cpu::expert_weights_gradient(input, expert.data(), dweight.data(), dlogits.data());
  return dlogits;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

std::vector<float> row_of(const std::vector<float>& rows, int64_t width, int64_t row) {
  return {rows.begin() + row * width, rows.begin() + (row + 1) * width};
}

TEST(CpuRouter, SqrtSoftplusIsExactForLargeLogitsOfEitherSign) {
  const std::vector<float> logits = {-200,   -150, -88, -60, -30.5f, -30, -29.99f, -20, -5,  -1,
                                     -1e-3f, 0,    .5f, 2,   3,      20,  20.01f,  40,  100, 1e30f};
  test::on_each_target([&] {
    RouterInput input = input_of(logits, 20, 20, Scoring::sqrtsoftplus);
    input.normalise = false;
    std::vector<int32_t> all(20);
    std::iota(all.begin(), all.end(), 0);
    const std::vector<float> scores = weights(input, all), slopes = gradient(input, all, std::vector<float>(20, 1));
    for (size_t e = 0; e < logits.size(); ++e) {
      // Where exp(l) would vanish beside 1 in f64: log1p(x) = x.
      const double l = logits[e], s = l < -40 ? std::exp(l / 2) : score(Scoring::sqrtsoftplus, logits, e);
      EXPECT_NEAR(scores[e], s, kScoreError * s + kSmallest) << l;
      const double slope = l < -40 ? s / 2 : 1 / (1 + std::exp(-l)) / (2 * s);
      EXPECT_NEAR(slopes[e], slope, 2 * kScoreError * slope + kSmallest) << l;
    }
  });
}

TEST(CpuRouter, GivesTheGoldenValuesOfTheSpecification) {
  const std::vector<float> logits = {2, -1, .5f, 3};
  RouterInput input = input_of(logits, 4, 2, Scoring::sqrtsoftplus);
  input.factor = 1.5f;
  const std::vector<int32_t> expert = best(input, {0, 0, 0, 0});
  EXPECT_EQ(expert, (std::vector<int32_t>{0, 3}));
  const std::vector<float> weight = weights(input, expert);
  EXPECT_NEAR(weight[0], .6826817, 5e-8);
  EXPECT_NEAR(weight[1], .8173183, 5e-8);
}

TEST(CpuRouter, EveryScoringFollowsItsFormula) {
  test::on_each_target([&] {
    for (const Scoring scoring : kScorings) {
      for (const int64_t experts : {1, 3, 16, 37}) {
        const std::vector<float> logits = test::noise(experts, 5, 3);
        RouterInput input = input_of(logits, experts, experts, scoring);
        input.normalise = false;
        std::vector<int32_t> all(static_cast<size_t>(experts));
        std::iota(all.begin(), all.end(), 0);
        const std::vector<float> scores = weights(input, all);
        for (size_t e = 0; e < scores.size(); ++e) {
          const double wanted = score(scoring, logits, e);
          // The terms of a softmax's sum are rounded one after the other.
          const double limit = scoring == Scoring::softmax ? kScoreError + 0x1p-24 * 37 : kScoreError;
          EXPECT_NEAR(scores[e], wanted, limit * wanted) << experts << " experts, " << e;
        }
      }
    }
  });
}

TEST(CpuRouter, TheBestAreThoseOfAStableSortWhateverTheNumberOfExperts) {
  for (const Scoring scoring : kScorings) {
    for (const int64_t experts : {1, 5, 16, 17, 40, 384}) {
      const int64_t tokens = 7;
      std::vector<float> logits = test::noise(tokens * experts, 1), bias = test::noise(experts, 2, .1f);
      for (size_t i = 0; i < logits.size(); i += 3) logits[i] = .5f;  // ties, where the bias is equal too
      for (size_t e = 0; e < bias.size(); e += 2) bias[e] = 0;
      std::vector<int32_t> ids(static_cast<size_t>(experts));
      std::iota(ids.begin(), ids.end(), 0);
      for (int64_t t = 0; t < tokens; ++t) {
        const std::vector<float> row = row_of(logits, experts, t);
        for (const int64_t per_token : {int64_t{1}, std::min<int64_t>(6, experts), std::min<int64_t>(64, experts)}) {
          RouterInput input = input_of(row, experts, per_token, scoring);
          input.normalise = false;
          std::vector<float> key = bias;
          for (const int32_t e : ids) {
            input.per_token = 1;
            key[static_cast<size_t>(e)] += weights(input, {e})[0];
          }
          input.per_token = per_token;
          std::vector<int32_t> order = ids;
          std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            return key[static_cast<size_t>(a)] > key[static_cast<size_t>(b)];
          });
          order.resize(static_cast<size_t>(per_token));
          std::sort(order.begin(), order.end());
          EXPECT_EQ(best(input, bias), order) << experts << " experts, token " << t;
        }
      }
    }
  }
}

TEST(CpuRouter, AnAllEqualRowGivesTheLowestIds) {
  const std::vector<float> logits(100, 1.25f), bias(100, 0);
  EXPECT_EQ(best(input_of(logits, 100, 4, Scoring::sqrtsoftplus), bias), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(CpuRouter, NaNIsChosenFirstAndStaysNaN) {
  std::vector<float> logits = test::noise(40, 3);
  const std::vector<float> bias(40, 0);
  logits[7] = logits[33] = std::numeric_limits<float>::quiet_NaN();
  for (const Scoring scoring : {Scoring::sqrtsoftplus, Scoring::sigmoid}) {
    const RouterInput input = input_of(logits, 40, 2, scoring);
    EXPECT_EQ(best(input, bias), (std::vector<int32_t>{7, 33}));
    EXPECT_TRUE(std::isnan(weights(input, {7, 9})[1]));
  }
  const std::vector<float> nothing(40, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(best(input_of(nothing, 40, 3, Scoring::softmax), bias), (std::vector<int32_t>{0, 1, 2}));
}

TEST(CpuRouter, GradientsAreTheSlopesOfTheWeights) {
  constexpr int64_t kExperts = 19, kChosen = 5;
  const std::vector<float> logits = test::noise(kExperts, 8, 2), dweight = test::noise(kChosen, 9);
  const std::vector<int32_t> expert = {0, 3, 4, 17, 18};
  test::on_each_target([&] {
    for (const Scoring scoring : kScorings) {
      for (const bool normalise : {false, true}) {
        RouterInput input = input_of(logits, kExperts, kChosen, scoring);
        input.normalise = normalise;
        input.factor = 2.5f;
        const auto value = [&](size_t moved, double by) {
          std::vector<double> s;
          for (const int32_t e : expert) {
            // The scores in f64, of logits of which one is moved.
            double sum = 0, own = logits[static_cast<size_t>(e)] + (static_cast<size_t>(e) == moved ? by : 0);
            for (size_t i = 0; i < kExperts; ++i) sum += std::exp(logits[i] + (i == moved ? by : 0) - own);
            s.push_back(scoring == Scoring::softmax   ? 1 / sum
                        : scoring == Scoring::sigmoid ? 1 / (1 + std::exp(-own))
                                                      : std::sqrt(std::log1p(std::exp(own))));
          }
          const bool divides = normalise && scoring != Scoring::softmax;
          const double sum = divides ? std::accumulate(s.begin(), s.end(), 0.0) : 1;
          double total = 0;
          for (size_t a = 0; a < s.size(); ++a) total += dweight[a] * 2.5 * s[a] / sum;
          return total;
        };
        const std::vector<float> dlogits = gradient(input, expert, dweight);
        for (size_t e = 0; e < kExperts; ++e) {
          constexpr double kStep = 1e-5;  // truncation 1e-10, rounding 1e-11
          EXPECT_NEAR(dlogits[e], (value(e, kStep) - value(e, -kStep)) / (2 * kStep), 2e-6) << e;
        }
      }
    }
  });
}

TEST(CpuRouter, ATokensResultDoesNotDependOnItsNeighboursOrOnThreads) {
  constexpr int64_t kTokens = 300, kExperts = 71, kChosen = 6;
  const std::vector<float> logits = test::noise(kTokens * kExperts, 4), bias = test::noise(kExperts, 5, .1f);
  const std::vector<float> dweight = test::noise(kTokens * kChosen, 6);
  const int before = base::num_threads();
  for (const Scoring scoring : kScorings) {
    const RouterInput input = input_of(logits, kExperts, kChosen, scoring);
    base::set_num_threads(1);
    const std::vector<int32_t> expert = best(input, bias);
    const std::vector<float> weight = weights(input, expert), dlogits = gradient(input, expert, dweight);
    for (const int threads : {2, 3}) {
      base::set_num_threads(threads);
      EXPECT_EQ(best(input, bias), expert);
      EXPECT_TRUE(same_bits(weights(input, expert), weight));
      EXPECT_TRUE(same_bits(gradient(input, expert, dweight), dlogits));
    }
    for (const int64_t t : {0, 1, 299}) {
      const std::vector<float> row = row_of(logits, kExperts, t);
      const RouterInput alone = input_of(row, kExperts, kChosen, scoring);
      const std::vector<int32_t> chosen(expert.begin() + t * kChosen, expert.begin() + (t + 1) * kChosen);
      EXPECT_EQ(best(alone, bias), chosen);
      EXPECT_TRUE(same_bits(weights(alone, chosen), row_of(weight, kChosen, t)));
      EXPECT_TRUE(same_bits(gradient(alone, chosen, row_of(dweight, kChosen, t)), row_of(dlogits, kExperts, t)));
    }
  }
  base::set_num_threads(before);
}

TEST(CpuRouter, NoTokensAreFine) {
  const std::vector<float> none, bias(4, 0);
  EXPECT_TRUE(best(input_of(none, 4, 2, Scoring::sqrtsoftplus), bias).empty());
}

}  // namespace
