#include "kernels/cpu/indexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/cpu/sequences.h"

namespace test {
namespace {

using kernels::cpu::ChoiceInput;
using kernels::cpu::ChoiceSpan;
using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int32_t> best(const std::vector<float>& scores, int64_t topk) {
  std::vector<int32_t> ids(static_cast<size_t>(topk), 99);
  kernels::cpu::best_ids(scores.data(), static_cast<int64_t>(scores.size()), topk, ids.data());
  return ids;
}

TEST(BestIds, TiesGoToTheLowerIdAndIdsAscend) {
  EXPECT_THAT(best({1, 3, 2, 3, 3}, 2), ElementsAre(1, 3));
  EXPECT_THAT(best({1, 3, 2, 3, 3}, 4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(best({5, 5, 5, 5}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(best({-1, -2, -1, -3, -1}, 2), ElementsAre(0, 2));
  EXPECT_THAT(best({0.0f, -0.0f, 0.0f, 1}, 3), ElementsAre(0, 1, 3));  // -0 is 0
  EXPECT_THAT(best({-0.0f, 0.0f, -1}, 1), ElementsAre(0));
  EXPECT_THAT(best({1, kInfinity, -kInfinity, 2}, 3), ElementsAre(0, 1, 3));
}

TEST(BestIds, AllAreTakenWhereThereAreNoMoreThanK) {
  EXPECT_THAT(best({3, 1}, 4), ElementsAre(0, 1, -1, -1));
  EXPECT_THAT(best({3, 1}, 2), ElementsAre(0, 1));
  EXPECT_THAT(best({}, 2), ElementsAre(-1, -1));
  EXPECT_THAT(best({1, 2}, 0), ElementsAre());
}

TEST(BestIds, NanCountsAsTheLowestScore) {
  EXPECT_THAT(best({kPoison, 1, -kPoison, 2, -5}, 3), ElementsAre(1, 3, 4));
  EXPECT_THAT(best({kPoison, -kInfinity, kPoison}, 2), ElementsAre(0, 1));
  EXPECT_THAT(best({kPoison, kPoison, kPoison}, 1), ElementsAre(0));
}

TEST(BestIds, ManyScoresAreThoseOfASort) {
  base::Philox random(1);
  for (const int64_t count : {33, 1000, 5000}) {
    std::vector<float> scores(static_cast<size_t>(count));
    for (float& score : scores) score = static_cast<float>(random.next_below(50)) - 25;
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(32);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(best(scores, 32), order);
  }
}

struct Sizes {
  int64_t heads = 0, dim = 0, ratio = 0, topk = 0;
  std::vector<int64_t> lengths;
};

struct Sequences {
  Sequences(const Sizes& s, base::Philox& random, bool whole_numbers) : sizes(s) {
    const auto draw = [&](int64_t count) {
      std::vector<float> values = normals(random, count);
      if (whole_numbers) {
        for (float& value : values) value = std::round(value);
      }
      return values;
    };
    for (const int64_t length : s.lengths) {
      query.push_back(draw(length * s.heads * s.dim));
      weight.push_back(draw(length * s.heads));
      keys.push_back(draw(length / s.ratio * s.dim));
    }
  }
  Sizes sizes;
  std::vector<std::vector<float>> query, weight, keys;
};

// Choices [length, topk] of each sequence, made in these passes; keys that are not there yet are poisoned.
std::vector<std::vector<int32_t>> choose(const Sequences& from, const std::vector<Pass>& passes) {
  const Sizes& s = from.sizes;
  std::vector<std::vector<int32_t>> chosen;
  int64_t capacity = 0;
  for (const int64_t length : s.lengths) {
    capacity = std::max(capacity, length / s.ratio);
    chosen.emplace_back(static_cast<size_t>(length * s.topk), 99);
  }
  const auto slots = static_cast<int64_t>(s.lengths.size()) + 1;
  std::vector<float> cache(static_cast<size_t>(slots * capacity * s.dim), kPoison);
  for (const Pass& pass : passes) {
    std::vector<ChoiceSpan> spans;
    std::vector<float> query, weight;
    std::vector<int32_t> span_T;
    for (const Piece& piece : pass) {
      const auto q = static_cast<size_t>(piece.sequence);
      const int64_t slot = slots - 1 - piece.sequence, end = piece.start + piece.count;
      spans.push_back({piece.start, static_cast<int64_t>(span_T.size()), slot * capacity});
      span_T.insert(span_T.end(), static_cast<size_t>(piece.count), static_cast<int32_t>(spans.size()) - 1);
      const auto copy = [&](const auto& all, int64_t width, auto& to) {
        to.insert(to.end(), all[q].begin() + piece.start * width, all[q].begin() + end * width);
      };
      copy(from.query, s.heads * s.dim, query);
      copy(from.weight, s.heads, weight);
      std::copy_n(from.keys[q].begin(), end / s.ratio * s.dim, cache.begin() + slot * capacity * s.dim);
    }
    const ChoiceInput input{
        query.data(), weight.data(), cache.data(), spans, span_T.data(), static_cast<int64_t>(span_T.size()),
        s.heads,      s.dim,         s.ratio,      s.topk};
    std::vector<int32_t> result(span_T.size() * static_cast<size_t>(s.topk), 99);
    kernels::cpu::choose_entries(input, result.data());
    for (size_t i = 0; i < pass.size(); ++i) {
      std::copy_n(result.begin() + spans[i].first * s.topk, pass[i].count * s.topk,
                  chosen[static_cast<size_t>(pass[i].sequence)].begin() + pass[i].start * s.topk);
    }
  }
  return chosen;
}

const std::vector<Sizes> kSizes = {
    {16, 32, 4, 8, {150, 7, 66}}, {3, 5, 4, 2, {60, 31}}, {1, 1, 1, 3, {20}}, {22, 12, 2, 5, {90, 64}}};

// Whole numbers: every sum is exact, and there are many ties.
TEST(CpuIndexer, TheBestVisibleEntriesAreChosen) {
  base::Philox random(2);
  for (const Sizes& sizes : kSizes) {
    const Sequences sequences(sizes, random, true);
    const auto chosen = choose(sequences, {whole(sizes.lengths)});
    for (size_t s = 0; s < sizes.lengths.size(); ++s) {
      for (int64_t p = 0; p < sizes.lengths[s]; ++p) {
        std::vector<float> scores;
        for (int64_t w = 0; w < (p + 1) / sizes.ratio; ++w) {
          double score = 0;
          for (int64_t h = 0; h < sizes.heads; ++h) {
            const float* q = &sequences.query[s][static_cast<size_t>((p * sizes.heads + h) * sizes.dim)];
            const float* k = &sequences.keys[s][static_cast<size_t>(w * sizes.dim)];
            const double dot = std::inner_product(q, q + sizes.dim, k, 0.0);
            score += sequences.weight[s][static_cast<size_t>(p * sizes.heads + h)] * std::max(dot, 0.0);
          }
          scores.push_back(static_cast<float>(score));
        }
        const auto row = chosen[s].begin() + p * sizes.topk;
        EXPECT_EQ(std::vector<int32_t>(row, row + sizes.topk), best(scores, sizes.topk)) << s << " " << p;
      }
    }
  }
}

TEST(CpuIndexer, ChunksAndThreadsChooseTheSame) {
  base::Philox random(3);
  for (const Sizes& sizes : kSizes) {
    const Sequences sequences(sizes, random, false);
    const auto all = choose(sequences, {whole(sizes.lengths)});
    for (const int64_t chunk : {1, 3, 64}) EXPECT_EQ(choose(sequences, in_chunks(sizes.lengths, chunk)), all);
    EXPECT_EQ(choose(sequences, mixed(random, sizes.lengths)), all);
    with_threads([&](int) { EXPECT_EQ(choose(sequences, {whole(sizes.lengths)}), all); });
  }
}

// 700 entries: several blocks of keys for one token.
TEST(CpuIndexer, ALongContextIsSharedByThreads) {
  base::Philox random(4);
  const Sizes sizes{16, 32, 1, 20, {700}};
  const Sequences sequences(sizes, random, false);
  const auto all = choose(sequences, {whole(sizes.lengths)});
  std::vector<Pass> passes = {{{0, 0, 690}}};
  for (int64_t p = 690; p < 700; ++p) passes.push_back({{0, p, 1}});
  with_threads([&](int) { EXPECT_EQ(choose(sequences, passes), all); });
}

TEST(CpuIndexer, NanScoresDoNoHarm) {
  base::Philox random(5);
  const Sizes sizes{4, 8, 2, 3, {40}};
  Sequences sequences(sizes, random, false);
  for (float& w : sequences.weight[0]) w = kPoison;
  const auto chosen = choose(sequences, {whole(sizes.lengths)});
  EXPECT_THAT(std::vector<int32_t>(chosen[0].end() - 3, chosen[0].end()), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace test
