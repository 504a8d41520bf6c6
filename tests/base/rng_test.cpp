// Philox against the known answers of its authors, and the shape of what is drawn from it.
#include "base/rng.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace {

using testing::ElementsAre;

// Source: Random123, tests/kat_vectors, philox4x32 with 10 rounds. Words there are in the order of our halves, low
// first.
TEST(Philox, EqualsTheKnownAnswersOfItsAuthors) {
  EXPECT_THAT(base::philox(0, 0, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(base::philox(UINT64_MAX, UINT64_MAX, UINT64_MAX),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(base::philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Philox, AStreamIsTheWordsOfItsBlocksInOrderFromAnyPosition) {
  base::Philox all(7);
  std::vector<uint32_t> words;
  for (int i = 0; i < 12; ++i) words.push_back(all.next());
  EXPECT_EQ(all.position(), 12u);
  for (uint64_t block = 0; block < 3; ++block) {
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(words[block * 4 + i], base::philox(7, block)[i]);
  }
  base::Philox resumed(7, 5);
  EXPECT_EQ(resumed.next(), words[5]);
}

TEST(Philox, UniformsLieInsideTheOpenInterval) {
  EXPECT_EQ(base::uniform_from_bits(0), 0.5 / 16777216);
  EXPECT_EQ(base::uniform_from_bits(UINT32_MAX), 1 - 0.5 / 16777216);
  EXPECT_EQ(static_cast<double>(static_cast<float>(base::uniform_from_bits(0x12345678))),
            base::uniform_from_bits(0x12345678));
}

// 60,000 draws into 6 cells: each count has a standard deviation of 91; 5 of them are 456.
TEST(Philox, NumbersBelowABoundAreUniform) {
  base::Philox stream(3);
  std::vector<int> count(6);
  for (int i = 0; i < 60000; ++i) ++count.at(stream.next_below(6));
  for (const int n : count) EXPECT_NEAR(n, 10000, 456);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stream.next_below(1), 0u);
}

// Standard errors for n = 40,000: mean 1/sqrt(n) = 0.005, variance sqrt(2/n) = 0.0071; 5 of each.
TEST(Philox, NormalsHaveMeanZeroAndVarianceOne) {
  base::Philox stream(11);
  double sum = 0, squares = 0;
  constexpr int kNum = 40000;
  for (int i = 0; i < kNum; ++i) {
    const double x = stream.next_normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kNum, 0, 0.025);
  EXPECT_NEAR(squares / kNum, 1, 0.036);
}

TEST(DeriveSeed, PartsOfARunGetDifferentSeedsThatNeverMove) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (uint64_t part = 0; part < 50; ++part) seeds.insert(base::derive_seed(seed, part));
  }
  EXPECT_EQ(seeds.size(), 2500u);
  EXPECT_NE(base::derive_seed(1, "shuffle"), base::derive_seed(1, "weights"));
  // Frozen: another mix would give every saved run other prompts and other noise. The first output of SplitMix64 from
  // state 0 is e220a8397b1dcdaf; given that as the part, the outer mix starts from 0 again.
  EXPECT_EQ(base::derive_seed(0, uint64_t{0xE220A8397B1DCDAF}), 0xE220A8397B1DCDAF);
}

}  // namespace
