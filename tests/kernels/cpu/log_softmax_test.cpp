#include "kernels/cpu/log_softmax.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/cpu/each_target.h"

namespace kernels::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const std::vector<int64_t> kSizes = {1, 2, 7, 15, 16, 17, 31, 1023, 1024, 1025, 2047, 4099, 40001};

std::vector<float> normal_row(int64_t count, double scale, uint64_t seed) {
  base::Philox random(seed);
  std::vector<float> row(static_cast<size_t>(count));
  for (float& z : row) z = static_cast<float>(scale * random.next_normal());
  return row;
}

struct Row {
  RowStatistics statistics;
  std::vector<float> shifted, weights;
};

Row run(const std::vector<float>& logits, float temperature) {
  Row row{{}, std::vector<float>(logits.size()), std::vector<float>(logits.size())};
  row.statistics = log_softmax_row(logits.data(), static_cast<int64_t>(logits.size()), temperature, row.shifted.data(),
                                   row.weights.data());
  return row;
}

// The order that the header states, one value after the other.
template <class T>
T sum_in_order(const std::vector<float>& values, float least, std::vector<T>* blocks = nullptr) {
  T total = 0;
  for (size_t at = 0; at < values.size(); at += kVocabBlock) {
    std::array<T, 16> lanes{};
    for (size_t i = at; i < std::min(values.size(), at + kVocabBlock); ++i) {
      if (values[i] >= least) lanes[(i - at) % 16] += values[i];
    }
    T sum = 0;
    for (const T lane : lanes) sum += lane;
    if (blocks) blocks->push_back(sum);
    total += sum;
  }
  return total;
}

void expect_same(const RowStatistics& a, const RowStatistics& b) {
  EXPECT_EQ(a.finite, b.finite);
  EXPECT_EQ(a.best, b.best);
  EXPECT_EQ(a.max, b.max);
  EXPECT_EQ(a.log_sum, b.log_sum);
  EXPECT_EQ(a.entropy, b.entropy);
}

// z / T, the difference and the exponential are rounded once each; a sum adds fewer than 64 + 16 + V / 1024 roundings;
// the terms of the entropy are at most V * 1/e of the sum, each as exact as its weight.
TEST(LogSoftmaxRow, AgreesWithTheDefinitionInF64) {
  test::on_each_target([] {
    for (const int64_t size : kSizes) {
      for (const float temperature : {0.3f, 1.0f, 1.7f}) {
        const std::vector<float> logits = normal_row(size, 3, static_cast<uint64_t>(size));
        const Row row = run(logits, temperature);
        double highest = -INFINITY, largest = 0, sum = 0, weighted = 0;
        for (const float z : logits) highest = std::max(highest, double{z} / temperature);
        for (const float z : logits) {
          const double y = double{z} / temperature - highest;
          largest = std::max(largest, std::abs(double{z} / temperature));
          sum += std::exp(y), weighted += std::exp(y) * y;
        }
        const double tolerance = 0x1p-24 * (4 * largest + 2 * (80 + static_cast<double>(size) / 1024));
        ASSERT_TRUE(row.statistics.finite);
        EXPECT_NEAR(row.statistics.log_sum, std::log(sum), tolerance) << size << " at " << temperature;
        EXPECT_NEAR(row.statistics.entropy, std::log(sum) - weighted / sum, 4 * tolerance) << size;
        for (size_t i = 0; i < logits.size(); ++i) {
          const double y = double{logits[i]} / temperature - highest;
          ASSERT_NEAR(row.shifted[i], y, 0x1p-24 * 4 * largest);
          ASSERT_NEAR(row.weights[i], std::exp(y), 0x1p-24 * (4 * largest + 4));
        }
      }
    }
  });
}

TEST(LogSoftmaxRow, SumsStandInTheStatedOrder) {
  test::on_each_target([] {
    for (const int64_t size : kSizes) {
      const Row row = run(normal_row(size, 2, 5), 1.0f);
      EXPECT_EQ(row.statistics.log_sum, std::log(sum_in_order<float>(row.weights, 0))) << size;
      for (const float least : {0.0f, 0.01f, 1.0f}) {
        std::vector<double> want, got(static_cast<size_t>((size + kVocabBlock - 1) / kVocabBlock));
        sum_in_order<double>(row.weights, least, &want);
        block_masses(row.weights.data(), size, least, got.data());
        EXPECT_EQ(got, want) << size << " from " << least;
      }
    }
  });
}

TEST(LogSoftmaxRow, TheBestIsTheLowestIdOfTheHighestLogitAndWeighsExactlyOne) {
  test::on_each_target([] {
    for (const int64_t size : kSizes) {
      for (const int64_t best : {int64_t{0}, size / 2, size - 1}) {
        std::vector<float> logits = normal_row(size, 1, 3);
        logits.back() = 20;
        logits[static_cast<size_t>(best)] = 20;
        const Row row = run(logits, 0.7f);
        EXPECT_EQ(row.statistics.best, best);
        EXPECT_EQ(row.shifted[static_cast<size_t>(best)], 0);
        EXPECT_EQ(row.weights[static_cast<size_t>(best)], 1);
        EXPECT_EQ(row.statistics.max, 20 / 0.7f);
      }
    }
  });
}

TEST(LogSoftmaxRow, InPlaceAndWithoutWeightsGiveTheSameBits) {
  test::on_each_target([] {
    for (const int64_t size : kSizes) {
      const std::vector<float> logits = normal_row(size, 4, 9);
      const Row row = run(logits, 0.9f);
      std::vector<float> in_place = logits;
      expect_same(log_softmax_row(in_place.data(), size, 0.9f, in_place.data(), nullptr), row.statistics);
      EXPECT_EQ(in_place, row.shifted);
    }
  });
}

TEST(LogSoftmaxRow, ThreadsDoNotChangeABit) {
  const std::vector<float> logits = normal_row(300001, 3, 2);
  const int before = base::num_threads();
  base::set_num_threads(1);
  const Row alone = run(logits, 1.1f);
  for (const int threads : {2, 3}) {
    base::set_num_threads(threads);
    const Row row = run(logits, 1.1f);
    expect_same(row.statistics, alone.statistics);
    EXPECT_EQ(row.shifted, alone.shifted);
    EXPECT_EQ(row.weights, alone.weights);
  }
  base::set_num_threads(before);
}

TEST(LogSoftmaxRow, IdsWithoutATokenWeighNothing) {
  test::on_each_target([] {
    const Row row = run({0, -kInf, 0, -kInf, -1e30f}, 1.0f);
    ASSERT_TRUE(row.statistics.finite);
    EXPECT_EQ(row.weights, (std::vector<float>{1, 0, 1, 0, 0}));
    EXPECT_EQ(row.statistics.log_sum, std::log(2.0f));
    EXPECT_EQ(row.statistics.entropy, std::log(2.0f));
    EXPECT_EQ(log_prob(row.statistics, row.shifted.data(), 1), -kInf);
  });
}

TEST(LogSoftmaxRow, RowsThatAreNotFiniteAreMarked) {
  test::on_each_target([] {
    const auto finite = [](const std::vector<float>& logits, float temperature = 1) {
      return run(logits, temperature).statistics.finite;
    };
    for (const int64_t size : kSizes) {
      for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
        for (const float bad : {NAN, -NAN, kInf}) {
          std::vector<float> logits = normal_row(size, 1, 4);
          logits[static_cast<size_t>(at)] = bad;
          EXPECT_FALSE(finite(logits)) << bad << " at " << at << " of " << size;
        }
      }
      EXPECT_FALSE(finite(std::vector<float>(static_cast<size_t>(size), -kInf)));
    }
    EXPECT_FALSE(finite({3e38f, 0}, 0.1f));
    EXPECT_TRUE(finite({-3e38f, 0}, 0.1f));  // only a probability that is 0
  });
}

}  // namespace
}  // namespace kernels::cpu
