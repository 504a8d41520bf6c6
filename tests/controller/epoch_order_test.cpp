#include "controller/epoch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace controller {
namespace {

std::vector<int64_t> epoch(EpochOrder& order, int64_t number) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < order.size(); ++i) rows.push_back(order.row(number * order.size() + i));
  return rows;
}

TEST(EpochOrder, EachEpochHasEachRowOnceInAnOrderOfItsOwn) {
  EpochOrder order(50, 1, true);
  const std::vector<int64_t> first = epoch(order, 0), second = epoch(order, 1);
  EXPECT_NE(first, second);
  for (std::vector<int64_t> rows : {first, second}) {
    std::sort(rows.begin(), rows.end());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], static_cast<int64_t>(i));
  }
}

TEST(EpochOrder, PositionIsOneNumberWhereverOneStarts) {
  EpochOrder walked(7, 3, true), jumped(7, 3, true);
  for (int64_t n = 0; n < 40; ++n) walked.row(n);
  EXPECT_EQ(walked.row(40), jumped.row(40));
  EXPECT_EQ(walked.row(6), jumped.row(6)) << "going back over the border of an epoch";
}

TEST(EpochOrder, SeedDecidesTheOrder) {
  EpochOrder a(50, 1, true), b(50, 1, true), c(50, 2, true);
  EXPECT_EQ(epoch(a, 4), epoch(b, 4));
  EXPECT_NE(epoch(a, 4), epoch(c, 4));
}

TEST(EpochOrder, WithoutShuffleItIsTheOrderOfTheFile) {
  EpochOrder order(3, 1, false);
  EXPECT_THAT(epoch(order, 0), ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(epoch(order, 5), ::testing::ElementsAre(0, 1, 2));
}

TEST(EpochOrder, EveryRowIsAsLikelyInEveryPlace) {
  // 4 rows, 4000 epochs: each row stands first 1000 times, with a standard deviation of sqrt(4000 * 1/4 * 3/4) = 27.
  EpochOrder order(4, 9, true);
  std::vector<int64_t> first(4);
  for (int64_t e = 0; e < 4000; ++e) ++first[static_cast<size_t>(order.row(e * 4))];
  for (const int64_t count : first) EXPECT_NEAR(count, 1000, 5 * 27);
}

}  // namespace
}  // namespace controller
