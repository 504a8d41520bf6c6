#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace {

class Parallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    before_ = base::num_threads();
    base::set_num_threads(GetParam());
  }
  void TearDown() override { base::set_num_threads(before_); }

 private:
  int before_ = 1;
};

TEST_P(Parallel, EveryElementIsSeenOnceInRangesOfWholeGrains) {
  for (const int64_t count : {0, 1, 7, 8, 9, 1000, 4097}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    std::atomic<bool> whole = true;
    base::parallel_for(count, 8, [&](int64_t begin, int64_t end) {
      if (begin % 8 != 0 || (end % 8 != 0 && end != count)) whole = false;
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    EXPECT_TRUE(whole);
    for (const auto& times : seen) EXPECT_EQ(times, 1);
  }
}

TEST_P(Parallel, ABodyMayCallAgain) {
  std::atomic<int64_t> sum = 0;
  base::parallel_for(20, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      base::parallel_for(10, 1, [&](int64_t from, int64_t to) { sum += to - from; });
    }
  });
  EXPECT_EQ(sum, 200);
}

TEST_P(Parallel, CallersOnSeveralThreadsDoNotDisturbEachOther) {
  std::vector<int64_t> sums(4);
  {
    std::vector<std::jthread> callers;
    for (int64_t& sum : sums) {
      callers.emplace_back([&sum] {
        for (int round = 0; round < 500; ++round) {
          std::atomic<int64_t> part = 0;
          base::parallel_for(64, 1, [&](int64_t begin, int64_t end) { part += end - begin; });
          sum += part;
        }
      });
    }
  }
  for (const int64_t sum : sums) EXPECT_EQ(sum, 500 * 64);
}

INSTANTIATE_TEST_SUITE_P(Threads, Parallel, testing::Values(1, 2, 5));

// The workers have nothing to do for 200 ms: their processor time must be far below it (a spinning thread uses all).
TEST(Parallel, ThreadsWithoutWorkSleep) {
  base::set_num_threads(4);
  base::parallel_for(64, 1, [](int64_t, int64_t) {});
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used_s, 0.1);
}

}  // namespace
