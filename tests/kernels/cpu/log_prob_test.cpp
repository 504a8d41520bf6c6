#include "kernels/cpu/log_prob.h"

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

std::vector<float> normal_values(int64_t count, double scale, uint64_t seed) {
  base::Philox random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(scale * random.next_normal());
  return values;
}

PackedMatrix packed(const std::vector<float>& values, int64_t n, int64_t k, Strides strides,
                    std::vector<float>& panels) {
  panels.resize(static_cast<size_t>(panel_bytes(WeightFormat::f32, n, k)) / sizeof(float));
  pack_f32(values.data(), n, k, strides, panels.data());
  return {WeightFormat::f32, n, k, panels.data(), nullptr};
}

// Rows of a batch with a gradient for each result.
struct Batch {
  int64_t num_rows, hidden_size, vocab;
  std::vector<float> hidden, head, grad_log_prob, grad_entropy;
  std::vector<int64_t> targets;
  std::vector<int32_t> absent;
  float temperature = 0.7f;

  Batch(int64_t n, int64_t d, int64_t v)
      : num_rows(n),
        hidden_size(d),
        vocab(v),
        hidden(normal_values(n * d, 1, 1)),
        head(normal_values(v * d, 1, 2)),
        grad_log_prob(normal_values(n, 1, 3)),
        grad_entropy(normal_values(n, 1, 4)) {
    for (int64_t i = 0; i < n; ++i) targets.push_back((i * 7) % v);
  }
};

struct Results {
  std::vector<float> log_prob, entropy, grad_hidden, grad_head;
  bool operator==(const Results&) const = default;
};

Results run(const Batch& batch, int64_t rows_per_chunk) {
  const auto size = [](int64_t count) { return static_cast<size_t>(count); };
  std::vector<float> panels, transposed, scratch(size(std::min(rows_per_chunk, batch.num_rows) * batch.vocab));
  LogProbRows rows;
  rows.hidden = batch.hidden.data();
  rows.num_rows = batch.num_rows;
  rows.head = packed(batch.head, batch.vocab, batch.hidden_size, {batch.hidden_size, 1}, panels);
  rows.targets = batch.targets.data();
  rows.absent = batch.absent;
  rows.temperature = batch.temperature;
  rows.rows_per_chunk = rows_per_chunk;
  std::vector<RowSums> sums(size(batch.num_rows));
  Results results{std::vector<float>(sums.size()),
                  {},
                  std::vector<float>(batch.hidden.size()),
                  std::vector<float>(batch.head.size())};
  log_probs(rows, results.log_prob.data(), sums.data(), scratch.data());
  for (const RowSums& row : sums) results.entropy.push_back(row.entropy);
  LogProbGradient gradient;
  gradient.log_prob = batch.grad_log_prob.data();
  gradient.entropy = batch.grad_entropy.data();
  gradient.sums = sums.data();
  gradient.head_transposed = packed(batch.head, batch.hidden_size, batch.vocab, {1, batch.hidden_size}, transposed);
  gradient.hidden = results.grad_hidden.data();
  gradient.head = results.grad_head.data();
  log_prob_gradient(rows, gradient, scratch.data());
  return results;
}

// One row in f64: p and log p.
struct PlainRow {
  std::vector<double> p, log_p;
  double entropy = 0;
};
PlainRow plain_row(const Batch& batch, int64_t n) {
  PlainRow row;
  double sum = 0;
  for (int64_t v = 0; v < batch.vocab; ++v) {
    double z = 0;
    for (int64_t d = 0; d < batch.hidden_size; ++d) {
      z += double{batch.hidden[static_cast<size_t>(n * batch.hidden_size + d)]} *
           batch.head[static_cast<size_t>(v * batch.hidden_size + d)];
    }
    for (const int32_t id : batch.absent) {
      if (id == v) z = -INFINITY;
    }
    row.log_p.push_back(z / batch.temperature);
    sum += std::exp(row.log_p.back());
  }
  for (double& y : row.log_p) {
    y -= std::log(sum);
    row.p.push_back(std::exp(y));
    if (row.p.back() > 0) row.entropy -= row.p.back() * y;
  }
  return row;
}

// Sizes are small: logits are below 20, so f32 errs by 2^-24 * (20 + hidden_size) in each and less than ten times that
// in what is made from them; gradients are sums of at most max(V, N) such terms.
TEST(CpuLogProb, ValuesAndGradientsAgreeWithF64) {
  test::on_each_target([] {
    for (const auto& [n, d, v] :
         std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {3, 5, 17}, {9, 16, 33}, {5, 7, 1030}}) {
      Batch batch(n, d, v);
      if (v > 4) batch.absent = {1, static_cast<int32_t>(v - 1)};
      const Results got = run(batch, 2);
      const double limit = 0x1p-24 * static_cast<double>(20 + d) * 10;
      std::vector<double> grad_head(batch.head.size());
      for (int64_t i = 0; i < n; ++i) {
        const PlainRow row = plain_row(batch, i);
        const auto at = static_cast<size_t>(i);
        const int64_t target = batch.targets[at];
        const bool exists = row.p[static_cast<size_t>(target)] > 0;
        if (exists) {
          EXPECT_NEAR(got.log_prob[at], row.log_p[static_cast<size_t>(target)], limit);
        } else {
          EXPECT_EQ(got.log_prob[at], -kInf);
        }
        EXPECT_NEAR(got.entropy[at], row.entropy, limit);
        std::vector<double> grad_hidden(static_cast<size_t>(d));
        for (int64_t id = 0; id < v; ++id) {
          const double p = row.p[static_cast<size_t>(id)];
          if (p == 0) continue;
          double g = -p * (batch.grad_log_prob[at] +
                           batch.grad_entropy[at] * (row.log_p[static_cast<size_t>(id)] + row.entropy));
          if (id == target) g += batch.grad_log_prob[at];
          g /= batch.temperature;
          for (int64_t k = 0; k < d; ++k) {
            grad_hidden[static_cast<size_t>(k)] += g * batch.head[static_cast<size_t>(id * d + k)];
            grad_head[static_cast<size_t>(id * d + k)] += g * batch.hidden[static_cast<size_t>(i * d + k)];
          }
        }
        for (int64_t k = 0; k < d; ++k) {
          EXPECT_NEAR(got.grad_hidden[static_cast<size_t>(i * d + k)], grad_hidden[static_cast<size_t>(k)], 20 * limit);
        }
      }
      for (size_t i = 0; i < grad_head.size(); ++i) EXPECT_NEAR(got.grad_head[i], grad_head[i], 20 * limit);
    }
  });
}

TEST(CpuLogProb, ChunksAndThreadsDoNotChangeABit) {
  Batch batch(23, 24, 2100);
  batch.absent = {0, 2098, 2099};
  const int before = base::num_threads();
  base::set_num_threads(1);
  const Results alone = run(batch, 23);
  for (const int threads : {1, 2, 3}) {
    base::set_num_threads(threads);
    for (const int64_t rows : {1, 7, 256}) EXPECT_TRUE(run(batch, rows) == alone) << threads << ", " << rows;
  }
  base::set_num_threads(before);
}

TEST(CpuLogProb, ARowDoesNotKnowTheRowsAroundIt) {
  const Batch batch(12, 8, 100);
  const Results all = run(batch, 5);
  for (int64_t n = 0; n < batch.num_rows; ++n) {
    Batch one(1, 8, 100);
    const auto at = static_cast<size_t>(n);
    one.hidden.assign(batch.hidden.begin() + n * 8, batch.hidden.begin() + (n + 1) * 8);
    one.targets = {batch.targets[at]};
    one.grad_log_prob = {batch.grad_log_prob[at]};
    one.grad_entropy = {batch.grad_entropy[at]};
    const Results got = run(one, 1);
    EXPECT_EQ(got.log_prob[0], all.log_prob[at]);
    EXPECT_EQ(got.entropy[0], all.entropy[at]);
    for (size_t k = 0; k < 8; ++k) EXPECT_EQ(got.grad_hidden[k], all.grad_hidden[at * 8 + k]);
  }
}

TEST(CpuLogProb, ARowThatIsNotFiniteStaysVisibleAndAlone) {
  test::on_each_target([] {
    Batch batch(4, 8, 50);
    const Results clean = run(batch, 4);
    batch.hidden[8 + 3] = NAN;
    batch.hidden[16 + 2] = kInf;
    const Results got = run(batch, 4);
    for (const size_t bad : {1, 2}) {
      EXPECT_TRUE(std::isnan(got.log_prob[bad]) && std::isnan(got.entropy[bad]));
      EXPECT_TRUE(std::isnan(got.grad_hidden[bad * 8]));
    }
    for (const size_t good : {0, 3}) {
      EXPECT_EQ(got.log_prob[good], clean.log_prob[good]);
      for (size_t k = 0; k < 8; ++k) EXPECT_EQ(got.grad_hidden[good * 8 + k], clean.grad_hidden[good * 8 + k]);
    }
    EXPECT_TRUE(std::isnan(got.grad_head[0]));
  });
}

TEST(CpuLogProb, IdsWithoutATokenGetNoGradient) {
  Batch batch(6, 4, 20);
  batch.absent = {0, 7, 19};  // 0 and 7 are targets
  const Results got = run(batch, 6);
  EXPECT_EQ(got.log_prob[0], -kInf);
  EXPECT_EQ(got.log_prob[1], -kInf);
  EXPECT_TRUE(std::isfinite(got.entropy[0]));
  for (const size_t id : {0, 7, 19}) {
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(got.grad_head[id * 4 + k], 0);
  }
}

TEST(CpuLogProb, NoRowsAreNoWork) { EXPECT_TRUE(run(Batch(0, 4, 20), 3).log_prob.empty()); }

}  // namespace
}  // namespace kernels::cpu
