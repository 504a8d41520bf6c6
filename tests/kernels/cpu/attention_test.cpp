#include "kernels/cpu/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/sequences.h"

namespace test {
namespace {

using kernels::cpu::AttentionGradients;
using kernels::cpu::AttentionInput;
using kernels::cpu::AttentionSpan;

struct Sizes {
  int64_t heads = 0, dim = 0, window = 0;
  int64_t ratio = 0, chosen = 0;  // chosen 0: every visible entry
  std::vector<int64_t> lengths;
};

// All that the sequences consist of, by sequence and position.
struct Sequences {
  Sequences(const Sizes& s, uint64_t seed) : sizes(s), random(seed) {
    for (const int64_t length : sizes.lengths) {
      query.push_back(normals(random, length * sizes.heads * sizes.dim));
      kv.push_back(normals(random, length * sizes.dim));
      entries.push_back(normals(random, (sizes.ratio > 0 ? length / sizes.ratio : 0) * sizes.dim));
      chosen.emplace_back();
      for (int64_t p = 0; p < length; ++p) choose(p);
    }
    sink = normals(random, sizes.heads);
  }

  int64_t visible(int64_t position) const { return sizes.ratio > 0 ? (position + 1) / sizes.ratio : 0; }

  // A random choice for the last sequence's next token.
  void choose(int64_t position) {
    std::vector<int32_t> ids;
    for (int32_t w = 0; w < visible(position); ++w) ids.push_back(w);
    while (static_cast<int64_t>(ids.size()) > sizes.chosen)
      ids.erase(ids.begin() + static_cast<int64_t>(random.next_below(ids.size())));
    ids.resize(static_cast<size_t>(sizes.chosen), -1);
    chosen.back().insert(chosen.back().end(), ids.begin(), ids.end());
  }

  // Rows of the keys that a token sees.
  std::vector<const float*> keys(size_t sequence, int64_t position) const {
    std::vector<const float*> rows;
    for (int64_t p = std::max<int64_t>(0, position - sizes.window + 1); p <= position; ++p)
      rows.push_back(&kv[sequence][static_cast<size_t>(p * sizes.dim)]);
    for (int64_t w = 0; w < visible(position); ++w) {
      const auto begin = chosen[sequence].begin() + position * sizes.chosen, end = begin + sizes.chosen;
      if (sizes.chosen == 0 || std::find(begin, end, w) != end)
        rows.push_back(&entries[sequence][static_cast<size_t>(w * sizes.dim)]);
    }
    return rows;
  }

  Sizes sizes;
  base::Philox random;
  std::vector<std::vector<float>> query, kv, entries;
  std::vector<std::vector<int32_t>> chosen;
  std::vector<float> sink;
};

// Softmax weights of one head in double, and what it gives.
struct DenseHead {
  DenseHead(const Sequences& from, const float* query, const std::vector<const float*>& rows, double sink)
      : out(static_cast<size_t>(from.sizes.dim), 0.0) {
    const auto dim = static_cast<size_t>(from.sizes.dim);
    double total = std::exp(sink);
    for (const float* row : rows) {
      double dot = 0;
      for (size_t k = 0; k < dim; ++k) dot += static_cast<double>(query[k]) * row[k];
      weight.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
      total += weight.back();
    }
    for (double& w : weight) w /= total;
    sink_weight = std::exp(sink) / total;
    for (size_t n = 0; n < rows.size(); ++n) {
      for (size_t k = 0; k < dim; ++k) out[k] += weight[n] * rows[n][k];
    }
  }
  std::vector<double> weight, out;
  double sink_weight = 0;
};

// A cache whose rows are poisoned until the sequence writes them; sequence s has slot num_slots - 1 - s.
class Cached {
 public:
  explicit Cached(const Sequences& sequences) : from_(sequences) {
    const Sizes& s = from_.sizes;
    for (const int64_t length : s.lengths) capacity_ = std::max(capacity_, s.ratio > 0 ? length / s.ratio : 0);
    slots_ = static_cast<int64_t>(s.lengths.size()) + 1;
    ring_.assign(static_cast<size_t>(slots_ * s.window * s.dim), kPoison);
    entries_.assign(static_cast<size_t>(slots_ * capacity_ * s.dim), kPoison);
    for (const int64_t length : s.lengths) out.emplace_back(static_cast<size_t>(length * s.heads * s.dim), kPoison);
  }

  void run(const Pass& pass, bool round_bf16 = false) {
    const Sizes& s = from_.sizes;
    std::vector<AttentionSpan> spans;
    std::vector<float> query, kv;
    std::vector<int32_t> chosen, span_T;
    for (const Piece& piece : pass) {
      const auto q = static_cast<size_t>(piece.sequence);
      const int64_t slot = slots_ - 1 - piece.sequence, end = piece.start + piece.count;
      spans.push_back(
          {piece.start, piece.count, static_cast<int64_t>(span_T.size()), slot * s.window, slot * capacity_});
      span_T.insert(span_T.end(), static_cast<size_t>(piece.count), static_cast<int32_t>(spans.size()) - 1);
      const auto copy = [&](const auto& all, int64_t width, auto& to) {
        to.insert(to.end(), all[q].begin() + piece.start * width, all[q].begin() + end * width);
      };
      copy(from_.query, s.heads * s.dim, query);
      copy(from_.kv, s.dim, kv);
      copy(from_.chosen, s.chosen, chosen);
      if (s.ratio > 0)
        std::copy_n(from_.entries[q].begin(), end / s.ratio * s.dim, entries_.begin() + slot * capacity_ * s.dim);
    }
    AttentionInput input{
        query.data(),      kv.data(), ring_.data(), entries_.data(), s.chosen > 0 ? chosen.data() : nullptr,
        from_.sink.data(), spans,     span_T.data()};
    input.num_tokens = static_cast<int64_t>(span_T.size());
    input.num_heads = s.heads, input.head_dim = s.dim, input.window = s.window;
    input.ratio = s.ratio, input.num_chosen = s.chosen;
    input.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.dim)));
    std::vector<float> result(query.size(), kPoison);
    kernels::cpu::attend(input, round_bf16, result.data(), {});
    kernels::cpu::keep_window(kv.data(), spans, s.window, s.dim, ring_.data());
    for (size_t i = 0; i < pass.size(); ++i) {
      const int64_t width = s.heads * s.dim;
      std::copy_n(result.begin() + spans[i].first * width, pass[i].count * width,
                  out[static_cast<size_t>(pass[i].sequence)].begin() + pass[i].start * width);
    }
  }

  std::vector<std::vector<float>> out;

 private:
  const Sequences& from_;
  int64_t slots_ = 0, capacity_ = 0;
  std::vector<float> ring_, entries_;
};

std::vector<std::vector<float>> run_passes(const Sequences& sequences, const std::vector<Pass>& passes,
                                           bool round_bf16 = false) {
  Cached cached(sequences);
  for (const Pass& pass : passes) cached.run(pass, round_bf16);
  return cached.out;
}

const std::vector<Sizes> kSizes = {
    {4, 32, 16, 4, 8, {70, 1, 33}}, {3, 9, 5, 8, 0, {41, 17}},   {1, 1, 1, 1, 1, {7}},
    {18, 20, 7, 0, 0, {30, 2}},     {17, 37, 9, 3, 4, {40, 26}}, {2, 70, 128, 128, 0, {260, 5}},
};

// Errors of f32: a dot product of dim terms of order 1, times the scale; then sums of at most N positive weights. 2^-24
// each, on values of order 1 to 4.
constexpr double kTolerance = 2e-5;

TEST(CpuAttention, EachTokenIsTheSoftmaxOverItsOwnKeysAndTheSink) {
  for (const Sizes& sizes : kSizes) {
    Sequences sequences(sizes, 1);
    const auto out = run_passes(sequences, mixed(sequences.random, sizes.lengths));
    for (size_t s = 0; s < sizes.lengths.size(); ++s) {
      for (int64_t p = 0; p < sizes.lengths[s]; ++p) {
        const auto rows = sequences.keys(s, p);
        for (int64_t h = 0; h < sizes.heads; ++h) {
          const auto at = static_cast<size_t>((p * sizes.heads + h) * sizes.dim);
          const DenseHead head(sequences, &sequences.query[s][at], rows, sequences.sink[static_cast<size_t>(h)]);
          for (size_t k = 0; k < head.out.size(); ++k) ASSERT_NEAR(out[s][at + k], head.out[k], kTolerance);
        }
      }
    }
  }
}

TEST(CpuAttention, ChunksAndSingleTokensRepeatTheWholePassToTheBit) {
  for (const Sizes& sizes : kSizes) {
    Sequences sequences(sizes, 2);
    for (const bool round : {false, true}) {
      const auto all = run_passes(sequences, {whole(sizes.lengths)}, round);
      for (const int64_t chunk : {1, 3, 64})
        EXPECT_EQ(run_passes(sequences, in_chunks(sizes.lengths, chunk), round), all);
      EXPECT_EQ(run_passes(sequences, mixed(sequences.random, sizes.lengths), round), all);
    }
  }
}

TEST(CpuAttention, ThreadsDoNotChangeABit) {
  const Sizes sizes{36, 40, 30, 4, 6, {90, 3}};
  Sequences sequences(sizes, 3);
  std::vector<std::vector<float>> first;
  with_threads([&](int count) {
    const auto out = run_passes(sequences, {whole(sizes.lengths)});
    if (count == 1) first = out;
    EXPECT_EQ(out, first) << count << " threads";
  });
}

TEST(CpuAttention, RoundedResultsAreTheNearestBf16Values) {
  const Sizes sizes{4, 32, 16, 4, 8, {50}};
  const Sequences sequences(sizes, 4);
  const auto exact = run_passes(sequences, {whole(sizes.lengths)}),
             rounded = run_passes(sequences, {whole(sizes.lengths)}, true);
  for (size_t i = 0; i < exact[0].size(); ++i) {
    EXPECT_LE(std::abs(rounded[0][i] - exact[0][i]), std::ldexp(std::abs(exact[0][i]), -8));
    EXPECT_EQ(std::bit_cast<uint32_t>(rounded[0][i]) & 0xffff, 0u);
  }
}

TEST(CpuAttention, ANanInAQueryStaysInItsOwnHead) {
  const Sizes sizes{3, 8, 4, 0, 0, {6}};
  Sequences sequences(sizes, 5);
  const auto clean = run_passes(sequences, {whole(sizes.lengths)});
  sequences.query[0][static_cast<size_t>((4 * 3 + 1) * 8)] = kPoison;
  const auto out = run_passes(sequences, {whole(sizes.lengths)});
  for (size_t i = 0; i < out[0].size(); ++i) {
    if (i / 8 == 4 * 3 + 1) {
      EXPECT_TRUE(std::isnan(out[0][i]));
    } else {
      EXPECT_EQ(out[0][i], clean[0][i]);
    }
  }
}

TEST(CpuAttention, ChoicesThatTheTokenMayNotSeeAreNotRead) {
  const Sizes sizes{2, 8, 4, 4, 3, {20}};
  Sequences sequences(sizes, 6);
  for (size_t t = 0; t < 20; ++t) sequences.chosen[0][3 * t + 1] = 7;  // there are 5
  EXPECT_FALSE(std::isnan(run_passes(sequences, {whole(sizes.lengths)})[0].back()));
}

// ---- backward

struct Gradients {
  std::vector<float> query, kv, entries, sink;
};

// One pass without a cache, documents one after the other.
Gradients backward(const Sequences& from, const std::vector<std::vector<float>>& dout) {
  const Sizes& s = from.sizes;
  std::vector<AttentionSpan> spans;
  std::vector<float> query, kv, entries, grad;
  std::vector<int32_t> chosen, span_T;
  for (size_t q = 0; q < s.lengths.size(); ++q) {
    spans.push_back(
        {0, s.lengths[q], static_cast<int64_t>(span_T.size()), 0, static_cast<int64_t>(entries.size()) / s.dim});
    span_T.insert(span_T.end(), static_cast<size_t>(s.lengths[q]), static_cast<int32_t>(q));
    query.insert(query.end(), from.query[q].begin(), from.query[q].end());
    kv.insert(kv.end(), from.kv[q].begin(), from.kv[q].end());
    entries.insert(entries.end(), from.entries[q].begin(), from.entries[q].end());
    chosen.insert(chosen.end(), from.chosen[q].begin(), from.chosen[q].end());
    grad.insert(grad.end(), dout[q].begin(), dout[q].end());
  }
  AttentionInput input{
      query.data(),     kv.data(), nullptr,      entries.data(), s.chosen > 0 ? chosen.data() : nullptr,
      from.sink.data(), spans,     span_T.data()};
  input.num_tokens = static_cast<int64_t>(span_T.size());
  input.num_heads = s.heads, input.head_dim = s.dim, input.window = s.window;
  input.ratio = s.ratio, input.num_chosen = s.chosen;
  input.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.dim)));
  std::vector<float> out(query.size()), max(span_T.size() * static_cast<size_t>(s.heads)), total(max.size());
  kernels::cpu::attend(input, false, out.data(), {max.data(), total.data()});
  Gradients g{std::vector<float>(query.size(), kPoison), std::vector<float>(kv.size(), kPoison),
              std::vector<float>(entries.size(), kPoison), std::vector<float>(from.sink.size(), kPoison)};
  kernels::cpu::attend_backward(
      input, {max.data(), total.data()}, grad.data(),
      {g.query.data(), g.kv.data(), g.entries.data(), g.sink.data(), static_cast<int64_t>(entries.size()) / s.dim});
  return g;
}

// The same in double, by spec 4.9.
struct DenseGradients {
  std::vector<double> query, kv, entries, sink;

  DenseGradients(const Sequences& from, const std::vector<std::vector<float>>& dout) : sink(from.sink.size(), 0.0) {
    for (size_t s = 0; s < from.sizes.lengths.size(); ++s) {
      const size_t kv_at = kv.size(), entries_at = entries.size();
      kv.resize(kv_at + from.kv[s].size(), 0.0);
      entries.resize(entries_at + from.entries[s].size(), 0.0);
      const auto collects = [&](const float* row) {
        const bool in_window = row >= from.kv[s].data() && row < from.kv[s].data() + from.kv[s].size();
        return in_window ? &kv[kv_at + static_cast<size_t>(row - from.kv[s].data())]
                         : &entries[entries_at + static_cast<size_t>(row - from.entries[s].data())];
      };
      for (int64_t p = 0; p < from.sizes.lengths[s]; ++p) add_token(from, dout[s], s, p, collects);
    }
  }

 private:
  template <class F>
  void add_token(const Sequences& from, const std::vector<float>& dout, size_t s, int64_t p, const F& collects) {
    const auto dim = static_cast<size_t>(from.sizes.dim);
    const double scale = 1 / std::sqrt(static_cast<double>(dim));
    const auto rows = from.keys(s, p);
    for (int64_t h = 0; h < from.sizes.heads; ++h) {
      const auto at = static_cast<size_t>(p * from.sizes.heads + h) * dim;
      const float *q = &from.query[s][at], *d = &dout[at];
      const DenseHead head(from, q, rows, from.sink[static_cast<size_t>(h)]);
      double delta = 0;
      for (size_t k = 0; k < dim; ++k) delta += d[k] * head.out[k];
      sink[static_cast<size_t>(h)] -= head.sink_weight * delta;
      const size_t query_at = query.size();
      query.resize(query_at + dim, 0.0);
      for (size_t n = 0; n < rows.size(); ++n) {
        double dweight = 0;
        for (size_t k = 0; k < dim; ++k) dweight += static_cast<double>(d[k]) * rows[n][k];
        const double dscore = scale * head.weight[n] * (dweight - delta);
        double* const drow = collects(rows[n]);
        for (size_t k = 0; k < dim; ++k) {
          query[query_at + k] += dscore * rows[n][k];
          drow[k] += dscore * q[k] + head.weight[n] * d[k];
        }
      }
    }
  }
};

void expect_near(const std::vector<float>& values, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(values.size(), wanted.size());
  double largest = 1;
  for (const double w : wanted) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], wanted[i], tolerance * largest) << i;
}

TEST(CpuAttention, GradientsAreThoseOfTheDenseDefinition) {
  for (const Sizes& sizes : kSizes) {
    Sequences sequences(sizes, 7);
    std::vector<std::vector<float>> dout;
    for (const auto& query : sequences.query)
      dout.push_back(normals(sequences.random, static_cast<int64_t>(query.size())));
    const Gradients gradients = backward(sequences, dout);
    const DenseGradients wanted(sequences, dout);
    expect_near(gradients.query, wanted.query, kTolerance);
    expect_near(gradients.kv, wanted.kv, kTolerance);
    expect_near(gradients.entries, wanted.entries, kTolerance);
    expect_near(gradients.sink, wanted.sink, kTolerance);
  }
}

// 2400 tokens with 74 keys for 8 padded heads take two slices.
TEST(CpuAttention, GradientsOfALongPassDoNotDependOnThreads) {
  const Sizes sizes{2, 8, 64, 4, 10, {1500, 900}};
  Sequences sequences(sizes, 8);
  std::vector<std::vector<float>> dout;
  for (const auto& query : sequences.query)
    dout.push_back(normals(sequences.random, static_cast<int64_t>(query.size())));
  Gradients first;
  with_threads([&](int count) {
    const Gradients g = backward(sequences, dout);
    if (count == 1) {
      first = g;
      const DenseGradients wanted(sequences, dout);
      expect_near(g.query, wanted.query, kTolerance);
      expect_near(g.kv, wanted.kv, kTolerance);
      expect_near(g.entries, wanted.entries, kTolerance);
      expect_near(g.sink, wanted.sink, kTolerance);
    }
    EXPECT_EQ(g.query, first.query) << count << " threads";
    EXPECT_EQ(g.kv, first.kv) << count << " threads";
    EXPECT_EQ(g.entries, first.entries) << count << " threads";
    EXPECT_EQ(g.sink, first.sink) << count << " threads";
  });
}

TEST(CpuAttention, ADocumentsGradientDoesNotDependOnItsNeighbours) {
  const Sizes both{4, 32, 16, 4, 8, {70, 33}};
  Sequences sequences(both, 9);
  std::vector<std::vector<float>> dout;
  for (const auto& query : sequences.query)
    dout.push_back(normals(sequences.random, static_cast<int64_t>(query.size())));
  const Gradients together = backward(sequences, dout);
  for (auto* part : {&sequences.query, &sequences.kv, &sequences.entries}) part->erase(part->begin());
  sequences.chosen.erase(sequences.chosen.begin());
  sequences.sizes.lengths.erase(sequences.sizes.lengths.begin());
  dout.erase(dout.begin());
  const Gradients alone = backward(sequences, dout);
  const auto tail = [](const std::vector<float>& all, size_t count) {
    return std::vector<float>(all.end() - static_cast<int64_t>(count), all.end());
  };
  EXPECT_EQ(tail(together.query, alone.query.size()), alone.query);
  EXPECT_EQ(tail(together.kv, alone.kv.size()), alone.kv);
  EXPECT_EQ(tail(together.entries, alone.entries.size()), alone.entries);
}

TEST(CpuAttention, TheRingKeepsTheLastPositions) {
  const std::vector<float> kv = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> ring(9, -1);
  const std::vector<AttentionSpan> spans = {{5, 7, 0, 3}, {0, 2, 7, 6}};
  kernels::cpu::keep_window(kv.data(), spans, 3, 1, ring.data());
  EXPECT_THAT(ring, testing::ElementsAre(-1, -1, -1, 4, 5, 6, 7, 8, -1));  // positions 9, 10, 11; then 0, 1
}

TEST(CpuAttention, AnEmptyPassIsNothing) {
  kernels::cpu::attend({}, false, nullptr, {});
  AttentionInput input;
  input.num_heads = 2, input.head_dim = 3, input.window = 4;
  std::vector<float> dsink(2, kPoison);
  kernels::cpu::attend_backward(input, {}, nullptr, {nullptr, nullptr, nullptr, dsink.data()});
  EXPECT_THAT(dsink, testing::Each(0));
}

}  // namespace
}  // namespace test
