#include "kernels/cpu/compressor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/sequences.h"

namespace test {
namespace {

using kernels::cpu::PoolInput;
using kernels::cpu::PoolSpan;

struct Sizes {
  int64_t ratio = 0, dim = 0;
  bool overlap = false;
  std::vector<int64_t> lengths;
  int64_t channels() const { return overlap ? 2 * dim : dim; }
  int64_t rows() const { return overlap ? 2 * ratio : ratio; }
};

struct Sequences {
  Sequences(const Sizes& s, base::Philox& random) : sizes(s), ape(normals(random, s.ratio * s.channels())) {
    for (const int64_t length : s.lengths) {
      kv.push_back(normals(random, length * s.channels()));
      score.push_back(normals(random, length * s.channels()));
    }
  }
  Sizes sizes;
  std::vector<float> ape;
  std::vector<std::vector<float>> kv, score;
};

// Rows and weights of one channel of one entry in double; absent rows are left out (spec 4.5).
struct DenseChannel {
  DenseChannel(const Sequences& from, size_t s, int64_t entry, int64_t c) {
    const Sizes& sizes = from.sizes;
    double total = 0;
    for (int64_t p = (entry + 1) * sizes.ratio - sizes.rows(); p < (entry + 1) * sizes.ratio; ++p) {
      if (p < 0) continue;
      const int64_t channel = sizes.overlap && p >= entry * sizes.ratio ? sizes.dim + c : c;
      at.push_back(static_cast<size_t>(p * sizes.channels() + channel));
      ape_at.push_back(static_cast<size_t>(p % sizes.ratio * sizes.channels() + channel));
      weight.push_back(std::exp(static_cast<double>(from.score[s][at.back()]) + from.ape[ape_at.back()]));
      total += weight.back();
    }
    for (size_t r = 0; r < at.size(); ++r) {
      weight[r] /= total;
      pooled += weight[r] * from.kv[s][at[r]];
    }
  }
  std::vector<size_t> at, ape_at;
  std::vector<double> weight;
  double pooled = 0;
};

// Entries of each sequence, made in these passes over a state that is poisoned where nobody wrote.
std::vector<std::vector<float>> pool(const Sequences& from, const std::vector<Pass>& passes, bool round_bf16 = false) {
  const Sizes& s = from.sizes;
  const auto slots = static_cast<int64_t>(s.lengths.size()) + 1;
  const int64_t width = s.channels();
  std::vector<float> state_kv(static_cast<size_t>(slots * s.rows() * width), kPoison), state_score = state_kv;
  std::vector<std::vector<float>> entries(s.lengths.size());
  for (const Pass& pass : passes) {
    std::vector<PoolSpan> spans;
    std::vector<float> kv, score;
    int64_t num_tokens = 0, num_new = 0;
    for (const Piece& piece : pass) {
      const auto q = static_cast<size_t>(piece.sequence);
      const int64_t end = piece.start + piece.count;
      spans.push_back({piece.start, piece.count, num_tokens, (slots - 1 - piece.sequence) * s.rows(), num_new});
      num_tokens += piece.count;
      num_new += end / s.ratio - piece.start / s.ratio;
      kv.insert(kv.end(), from.kv[q].begin() + piece.start * width, from.kv[q].begin() + end * width);
      score.insert(score.end(), from.score[q].begin() + piece.start * width, from.score[q].begin() + end * width);
    }
    const PoolInput input{kv.data(), score.data(), from.ape.data(), state_kv.data(), state_score.data(),
                          spans,     s.ratio,      s.dim,           s.overlap};
    std::vector<float> out(static_cast<size_t>(num_new * s.dim), kPoison);
    kernels::cpu::pool_rows(input, round_bf16, out.data());
    kernels::cpu::keep_rows(input);
    auto next = out.begin();
    for (const Piece& piece : pass) {
      const int64_t count = (piece.start + piece.count) / s.ratio - piece.start / s.ratio;
      auto& to = entries[static_cast<size_t>(piece.sequence)];
      to.insert(to.end(), next, next + count * s.dim);
      next += count * s.dim;
    }
  }
  return entries;
}

const std::vector<Sizes> kSizes = {{4, 32, true, {70, 3, 33}},   {4, 9, true, {17, 41}}, {8, 37, false, {7, 60, 16}},
                                   {128, 70, false, {300, 128}}, {1, 1, false, {5}},     {1, 3, true, {6, 1}}};

constexpr double kTolerance = 1e-5;  // at most 128 weights that sum to 1, values of order 1 to 4, 2^-24 for each step

TEST(CpuCompressor, AnEntryIsTheSoftmaxOverItsRowsChannelByChannel) {
  base::Philox random(1);
  for (const Sizes& sizes : kSizes) {
    const Sequences sequences(sizes, random);
    const auto entries = pool(sequences, mixed(random, sizes.lengths));
    for (size_t s = 0; s < sizes.lengths.size(); ++s) {
      ASSERT_EQ(static_cast<int64_t>(entries[s].size()), sizes.lengths[s] / sizes.ratio * sizes.dim);
      for (size_t i = 0; i < entries[s].size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const DenseChannel wanted(sequences, s, at / sizes.dim, at % sizes.dim);
        ASSERT_NEAR(entries[s][i], wanted.pooled, kTolerance);
      }
    }
  }
}

TEST(CpuCompressor, ChunksSingleTokensAndThreadsRepeatTheWholePassToTheBit) {
  base::Philox random(2);
  for (const Sizes& sizes : kSizes) {
    const Sequences sequences(sizes, random);
    const auto all = pool(sequences, {whole(sizes.lengths)}, true);
    for (const int64_t chunk : {1, 3, 64}) EXPECT_EQ(pool(sequences, in_chunks(sizes.lengths, chunk), true), all);
    EXPECT_EQ(pool(sequences, mixed(random, sizes.lengths), true), all);
    with_threads([&](int) { EXPECT_EQ(pool(sequences, {whole(sizes.lengths)}, true), all); });
  }
}

TEST(CpuCompressor, ANanStaysInItsChannelAndBlock) {
  base::Philox random(3);
  const Sizes sizes{8, 20, false, {24}};
  Sequences sequences(sizes, random);
  sequences.score[0][static_cast<size_t>(10 * 20 + 5)] = kPoison;
  const auto entries = pool(sequences, {whole(sizes.lengths)});
  for (size_t i = 0; i < entries[0].size(); ++i) EXPECT_EQ(std::isnan(entries[0][i]), i == 25);
}

struct Gradients {
  std::vector<float> kv, score, ape;
};

Gradients backward(const Sequences& from, const std::vector<float>& dout) {
  const Sizes& s = from.sizes;
  std::vector<PoolSpan> spans;
  std::vector<float> kv, score;
  int64_t num_tokens = 0, num_new = 0;
  for (size_t q = 0; q < s.lengths.size(); ++q) {
    spans.push_back({0, s.lengths[q], num_tokens, 0, num_new});
    num_tokens += s.lengths[q];
    num_new += s.lengths[q] / s.ratio;
    kv.insert(kv.end(), from.kv[q].begin(), from.kv[q].end());
    score.insert(score.end(), from.score[q].begin(), from.score[q].end());
  }
  const PoolInput input{kv.data(), score.data(), from.ape.data(), nullptr, nullptr, spans, s.ratio, s.dim, s.overlap};
  Gradients g{std::vector<float>(kv.size(), kPoison), std::vector<float>(kv.size(), kPoison),
              std::vector<float>(from.ape.size(), kPoison)};
  kernels::cpu::pool_rows_backward(input, dout.data(), {g.kv.data(), g.score.data(), g.ape.data(), num_tokens});
  return g;
}

TEST(CpuCompressor, GradientsAreThoseOfTheDefinitionWhateverTheThreads) {
  base::Philox random(4);
  for (const Sizes& sizes : kSizes) {
    const Sequences sequences(sizes, random);
    int64_t num_new = 0;
    for (const int64_t length : sizes.lengths) num_new += length / sizes.ratio;
    const std::vector<float> dout = normals(random, num_new * sizes.dim);
    std::vector<double> kv, score, ape(sequences.ape.size(), 0.0);
    int64_t first = 0;
    for (size_t s = 0; s < sizes.lengths.size(); ++s) {
      const size_t base = kv.size();
      kv.resize(base + sequences.kv[s].size(), 0.0);
      score.resize(kv.size(), 0.0);
      for (int64_t i = 0; i < sizes.lengths[s] / sizes.ratio * sizes.dim; ++i) {
        const DenseChannel channel(sequences, s, i / sizes.dim, i % sizes.dim);
        const double dy = dout[static_cast<size_t>(first + i)];
        for (size_t r = 0; r < channel.at.size(); ++r) {
          const double dscore = channel.weight[r] * dy * (sequences.kv[s][channel.at[r]] - channel.pooled);
          kv[base + channel.at[r]] += channel.weight[r] * dy;
          score[base + channel.at[r]] += dscore;
          ape[channel.ape_at[r]] += dscore;
        }
      }
      first += sizes.lengths[s] / sizes.ratio * sizes.dim;
    }
    const auto near = [](const std::vector<float>& values, const std::vector<double>& wanted) {
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], wanted[i], 5 * kTolerance) << i;
    };
    const Gradients one = backward(sequences, dout);
    near(one.kv, kv);
    near(one.score, score);
    near(one.ape, ape);
    with_threads([&](int) {
      const Gradients g = backward(sequences, dout);
      EXPECT_EQ(g.kv, one.kv);
      EXPECT_EQ(g.score, one.score);
      EXPECT_EQ(g.ape, one.ape);
    });
  }
}

TEST(CpuCompressor, AnEmptyPassIsNothing) {
  PoolInput input;
  input.ratio = 4, input.dim = 3;
  kernels::cpu::pool_rows(input, false, nullptr);
  kernels::cpu::keep_rows(input);
}

}  // namespace
}  // namespace test
