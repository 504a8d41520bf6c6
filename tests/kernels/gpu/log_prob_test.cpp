// Log-probs of rows against the CPU kernel: the sums to the bit, the logarithm within one unit.
#include "kernels/gpu/log_prob.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/expect_error.h"
#include "kernels/cpu/log_softmax.h"
#include "kernels/gpu/arithmetic.h"
#include "kernels/gpu/both_orders.h"

namespace {

using kernels::gpu::LogitRows;
using test::Floats;
using test::kInfinity;
using test::kNan;

struct Results {
  Floats log_prob, entropy;
};

Results run(LogitRows rows, const std::vector<int64_t>& targets) {
  rows.targets = targets.data();
  rows.rows = static_cast<int64_t>(targets.size());
  Results to{test::unset(rows.rows), test::unset(rows.rows)};
  std::fill(to.log_prob.begin(), to.log_prob.end(), 7.0f);
  kernels::gpu::log_probs(rows, {to.log_prob.data(), to.entropy.data()}, {});
  return to;
}

// The sum of the weights in the order that the header promises, written out plainly.
float total_of(const Floats& shifted) {
  float total = 0;
  for (size_t first = 0; first < shifted.size(); first += 1024) {
    float lane[16] = {}, block = 0;
    for (size_t i = first; i < std::min(first + 1024, shifted.size()); ++i)
      lane[(i - first) % 16] += kernels::gpu::exponential(shifted[i]);
    for (const float sum : lane) block += sum;
    total += block;
  }
  return total;
}

constexpr int64_t kVocabs[] = {1, 2, 15, 16, 17, 1000, 1024, 1025, 5000, 17000, 129280};

TEST(GpuLogProb, SumsAreThoseOfTheCpuKernelToTheBit) {
  SKIP_WITHOUT_FMA();
  for (const int64_t vocab : kVocabs) {
    for (const float temperature : {1.0f, 0.7f}) {
      const Floats logits = test::noise(vocab, 3, 4);
      Floats shifted = test::unset(vocab);
      const auto cpu = kernels::cpu::log_softmax_row(logits.data(), vocab, temperature, shifted.data(), nullptr);
      const float total = total_of(shifted);
      EXPECT_EQ(std::log(total), cpu.log_sum) << "the plain sum is not the CPU kernel's";
      const float log_sum = kernels::gpu::logarithm(total);
      EXPECT_NEAR(log_sum, cpu.log_sum, std::abs(cpu.log_sum) * 0x1p-23f);  // one unit
      const std::vector<int64_t> targets = {cpu.best, 0, vocab - 1, vocab / 2};
      Floats rows;
      for (size_t n = 0; n < targets.size(); ++n) rows.insert(rows.end(), logits.begin(), logits.end());
      test::in_both_orders([&] {
        LogitRows in;
        in.logits = rows.data(), in.vocab = vocab, in.temperature = temperature;
        const Results own = run(in, targets);
        for (size_t n = 0; n < targets.size(); ++n) {
          EXPECT_EQ(own.log_prob[n], shifted[static_cast<size_t>(targets[n])] - log_sum) << vocab;
          // Both take the same quotient from logarithms that are a unit apart, then round.
          EXPECT_NEAR(own.entropy[n], cpu.entropy, std::abs(log_sum) * 0x1p-22f) << vocab;
        }
      });
    }
  }
}

TEST(GpuLogProb, IdsWithoutATokenCountAsMinusInfinity) {
  constexpr int64_t kVocab = 3000;
  Floats logits = test::noise(kVocab, 5, 3), marked = logits;
  std::vector<char> absent(kVocab);
  static_assert(sizeof(bool) == sizeof(char));
  for (size_t id = 0; id < kVocab; id += 7) absent[id] = 1, marked[id] = -kInfinity;
  logits[0] = kNan;  // of an id without a token: nobody looks
  LogitRows in;
  in.logits = logits.data(), in.vocab = kVocab, in.absent = reinterpret_cast<const bool*>(absent.data());
  LogitRows plain = in;
  plain.logits = marked.data(), plain.absent = nullptr;
  for (const int64_t target : {0, 1, 7, 2999}) {
    const Results own = run(in, {target}), wanted = run(plain, {target});
    test::expect_same(own.log_prob, wanted.log_prob, "log_prob");
    test::expect_same(own.entropy, wanted.entropy, "entropy");
    EXPECT_EQ(own.log_prob[0] == -kInfinity, target % 7 == 0);
  }
}

TEST(GpuLogProb, RowsThatAreNotFiniteAndUnknownTargetsAreNaN) {
  const Floats logits = test::noise(40, 6);
  LogitRows in;
  in.vocab = 40;
  for (const float bad : {kNan, kInfinity, -kInfinity, 3e38f}) {
    Floats row = logits;
    if (bad == -kInfinity) row.assign(40, bad);
    row[33] = bad;
    in.logits = row.data(), in.temperature = bad == 3e38f ? 0.1f : 1;  // then the quotient overflows
    const Results own = run(in, {3});
    EXPECT_TRUE(std::isnan(own.log_prob[0]) && std::isnan(own.entropy[0])) << bad;
  }
  in.logits = logits.data(), in.temperature = 1;
  for (const int64_t target : {-1, 40}) {
    const Results own = run(in, {target});
    EXPECT_TRUE(std::isnan(own.log_prob[0]));
    EXPECT_TRUE(std::isfinite(own.entropy[0]));
  }
}

TEST(GpuLogProb, ARowsResultDoesNotDependOnItsNeighbours) {
  constexpr int64_t kVocab = 1500;
  Floats logits = test::noise(3 * kVocab, 7, 2);
  logits[5] = kNan;
  LogitRows in;
  in.logits = logits.data(), in.vocab = kVocab;
  const Results all = run(in, {1, 2, 3});
  in.logits += 2 * kVocab;
  EXPECT_TRUE(std::isnan(all.log_prob[0]));
  EXPECT_EQ(run(in, {3}).log_prob[0], all.log_prob[2]);
}

TEST(GpuLogProb, NoTemperatureIsRefused) {
  LogitRows in;
  in.vocab = 4, in.temperature = 0;
  test::expect_error(base::Code::internal, {"temperature"}, [&] { kernels::gpu::log_probs(in, {}, {}); });
}

}  // namespace
