// Packing: what must hold for any lengths, and how near the least number of microbatches it comes.
#include "data/packing.h"

#include <gmock/gmock.h>

#include <numeric>

#include "base/rng.h"
#include "data/golden_files.h"

namespace data {
namespace {

using data_test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::vector<int64_t>> samples_of(const std::vector<Microbatch>& batches) {
  std::vector<std::vector<int64_t>> all;
  for (const Microbatch& batch : batches) all.push_back(batch.samples);
  return all;
}

TEST(Packing, PropertiesHoldForRandomLengths) {
  base::Philox random(5);
  for (int trial = 0; trial < 400; ++trial) {
    const auto budget = static_cast<int64_t>(1 + random.next_below(300));
    std::vector<int64_t> lengths(random.next_below(60));
    for (int64_t& length : lengths)
      length = static_cast<int64_t>(1 + random.next_below(static_cast<uint64_t>(budget) * 5 / 4));
    const std::vector<Microbatch> batches = pack_microbatches(lengths, budget, OverBudget::alone);
    std::vector<int> seen(lengths.size(), 0);
    int64_t last_first = -1, num_fitting = 0, tokens_fitting = 0;
    for (const Microbatch& batch : batches) {
      ASSERT_FALSE(batch.samples.empty());
      EXPECT_TRUE(std::is_sorted(batch.samples.begin(), batch.samples.end()));
      EXPECT_GT(batch.samples[0], last_first);
      last_first = batch.samples[0];
      int64_t tokens = 0;
      for (const int64_t sample : batch.samples) {
        ++seen[static_cast<size_t>(sample)];
        tokens += lengths[static_cast<size_t>(sample)];
      }
      EXPECT_EQ(tokens, batch.num_tokens);
      EXPECT_TRUE(tokens <= budget || batch.samples.size() == 1);
      if (tokens <= budget) {
        ++num_fitting;
        tokens_fitting += tokens;
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(lengths.size()));
    // First-fit never leaves two microbatches that would fit in one.
    EXPECT_LE(num_fitting, std::max<int64_t>(1, 2 * tokens_fitting / budget + 1));
    EXPECT_EQ(samples_of(pack_microbatches(lengths, budget, OverBudget::alone)), samples_of(batches));
  }
}

// Where the least number is known by construction: k full microbatches cut into random parts.
TEST(Packing, StaysWithinTheBoundOfFirstFitDecreasing) {
  base::Philox random(9);
  for (int trial = 0; trial < 200; ++trial) {
    const auto least = static_cast<int64_t>(1 + random.next_below(12));
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < least; ++i) {
      int64_t left = 100;
      while (left > 0) {
        const auto part = static_cast<int64_t>(1 + random.next_below(static_cast<uint64_t>(left)));
        lengths.push_back(part);
        left -= part;
      }
    }
    const auto found = static_cast<int64_t>(pack_microbatches(lengths, 100, OverBudget::refuse).size());
    EXPECT_GE(found, least);
    EXPECT_LE(9 * found, 11 * least + 6);
  }
}

TEST(Packing, LevelsTheMicrobatches) {
  // First-fit alone would make 9+1 and 5; levelled: 9 and 5+1.
  EXPECT_EQ(samples_of(pack_microbatches(std::vector<int64_t>{9, 5, 1}, 10, OverBudget::refuse)),
            (std::vector<std::vector<int64_t>>{{0}, {1, 2}}));
  // 8 equal samples, room for 5 each: 4 and 4, not 5 and 3.
  const auto batches = pack_microbatches(std::vector<int64_t>(8, 2), 10, OverBudget::refuse);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].num_tokens, 8);
  EXPECT_EQ(batches[1].num_tokens, 8);
}

TEST(Packing, WhatLevellingCannotFitStaysAsFirstFit) {
  // 6+4, 5+5 fill two microbatches of 10; longest-to-emptiest would make 6+4+... 5+5 in another way or not at all.
  EXPECT_EQ(pack_microbatches(std::vector<int64_t>{6, 5, 5, 4}, 10, OverBudget::refuse).size(), 2U);
  EXPECT_EQ(pack_microbatches(std::vector<int64_t>{6, 4, 4, 3, 3}, 10, OverBudget::refuse).size(),
            2U);  // 6+4 and 4+3+3
}

TEST(Packing, ASampleBeyondTheBudgetIsRefusedOrAlone) {
  const std::vector<int64_t> lengths = {3, 12, 4};
  EXPECT_THAT(error_of([&] { pack_microbatches(lengths, 10, OverBudget::refuse); }),
              HasSubstr("sample 1 has 12 tokens, more than the 10"));
  EXPECT_EQ(samples_of(pack_microbatches(lengths, 10, OverBudget::alone)),
            (std::vector<std::vector<int64_t>>{{0, 2}, {1}}));
  EXPECT_THAT(error_of([] {
                pack_microbatches(std::vector<int64_t>{1, 0}, 10, OverBudget::alone);
              }),
              HasSubstr("sample 1 has 0 tokens"));
  EXPECT_THAT(error_of([] { pack_microbatches(std::vector<int64_t>{1}, 0, OverBudget::alone); }),
              HasSubstr("0 tokens"));
  EXPECT_TRUE(pack_microbatches({}, 10, OverBudget::refuse).empty());
}

}  // namespace
}  // namespace data
