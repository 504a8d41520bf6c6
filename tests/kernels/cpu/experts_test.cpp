// The counting sort, the gated activation and the ordered sum against plain loops; silu and its gradient in f64.
#include "kernels/cpu/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/each_target.h"
#include "kernels/cpu/simulate.h"

namespace {

using kernels::cpu::ExpertRows;
using kernels::cpu::PairSum;
using kernels::cpu::Swiglu;
using kernels::cpu::SwigluGradient;

// exp is within one unit in the last place; two sums, a division and four products follow.
constexpr double kActivationError = 5 * 0x1p-23;
constexpr int64_t kWidths[] = {1, 3, 7, 8, 15, 16, 17, 31, 33, 128, 129, 131, 300};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Gates and ups of some rows, weights by pair.
struct Case {
  int64_t rows, width;
  std::vector<float> gate, up, weight, dh;
  std::vector<int32_t> pair;
  Swiglu input;

  Case(int64_t rows_, int64_t width_, float scale = 6) : rows(rows_), width(width_) {
    gate = test::noise(rows * width, 1, scale);
    up = test::noise(rows * width, 2, scale);
    weight = test::noise(rows, 3);
    dh = test::noise(rows * width, 4);
    for (int64_t r = 0; r < rows; ++r) pair.push_back(static_cast<int32_t>((r + 1) % rows));
    input.gate = gate.data();
    input.up = up.data();
    input.weight = weight.data();
    input.pair = pair.data();
    input.rows = rows;
    input.width = width;
    input.limit = 10;
  }
  Case(const Case&) = delete;

  std::vector<float> h() const {
    std::vector<float> result(gate.size(), -1);
    kernels::cpu::swiglu(input, result.data());
    return result;
  }
  double weight_of(int64_t row) const {
    return input.weight == nullptr ? 1 : weight[static_cast<size_t>(pair[static_cast<size_t>(row)])];
  }
};

double silu(double g) { return g / (1 + std::exp(-g)); }

TEST(CpuExperts, RowsAreSortedByExpertAndInsideAnExpertByToken) {
  const std::vector<int32_t> expert = {1, 4, 0, 4, 1, 2, 4, 6};  // 4 tokens of 2 experts
  ExpertRows rows;
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second time with memory that was used before
    rows.sort(expert.data(), 4, 2, 7);
    const std::vector<int32_t> pair(rows.pair(), rows.pair() + 8), token(rows.token(), rows.token() + 8);
    EXPECT_EQ(pair, (std::vector<int32_t>{2, 0, 4, 5, 1, 3, 6, 7}));
    EXPECT_EQ(token, (std::vector<int32_t>{1, 0, 2, 2, 0, 1, 3, 3}));
    std::vector<std::vector<int64_t>> groups;
    for (const ExpertRows::Group& group : rows.groups()) groups.push_back({group.expert, group.first, group.count});
    EXPECT_EQ(groups, (std::vector<std::vector<int64_t>>{{0, 0, 1}, {1, 1, 2}, {2, 3, 1}, {4, 4, 3}, {6, 7, 1}}));
  }
  rows.sort(expert.data(), 0, 2, 7);
  EXPECT_TRUE(rows.groups().empty());
  EXPECT_EQ(rows.size(), 0);
}

TEST(CpuExperts, AnExpertThatDoesNotExistIsRefused) {
  ExpertRows rows;
  const std::vector<int32_t> high = {0, 3}, low = {-1, 0};
  EXPECT_THROW(rows.sort(high.data(), 2, 1, 3), base::Error);
  EXPECT_THROW(rows.sort(low.data(), 2, 1, 3), base::Error);
}

TEST(CpuExperts, TheActivationFollowsItsFormula) {
  test::on_each_target([] {
    for (const float limit : {0.0f, 10.0f}) {
      for (const int64_t width : kWidths) {
        Case c(3, width);
        c.input.limit = limit;
        const std::vector<float> h = c.h();
        for (int64_t i = 0; i < c.rows * width; ++i) {
          double g = c.gate[static_cast<size_t>(i)], u = c.up[static_cast<size_t>(i)];
          if (limit > 0) g = std::min<double>(g, limit), u = std::clamp<double>(u, -limit, limit);
          const double wanted = c.weight_of(i / width) * silu(g) * u;
          EXPECT_NEAR(h[static_cast<size_t>(i)], wanted, kActivationError * std::abs(wanted)) << width << " at " << i;
        }
      }
    }
  });
}

TEST(CpuExperts, SiluIsAccurateOverItsWholeRange) {
  std::vector<float> gate;
  for (float g = -110; g < 110; g += .0371f) gate.push_back(g);
  const std::vector<float> up(gate.size(), 1);
  std::vector<float> h(gate.size());
  test::on_each_target([&] {
    kernels::cpu::swiglu({gate.data(), up.data(), nullptr, nullptr, 1, static_cast<int64_t>(gate.size()), 0}, h.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double wanted = silu(gate[i]);
      // Below the normal numbers a unit in the last place is 2^-149, of the exponential before it is multiplied by g.
      EXPECT_NEAR(h[i], wanted, kActivationError * std::abs(wanted) + 110 * 0x1p-149) << gate[i];
    }
  });
}

TEST(CpuExperts, GivesTheGoldenValuesOfTheSpecification) {
  const std::vector<float> gate = {12, -50}, up = {-15, 1};
  std::vector<float> h(2);
  kernels::cpu::swiglu({gate.data(), up.data(), nullptr, nullptr, 1, 2, 10}, h.data());
  EXPECT_NEAR(h[0], -99.99546, 1e-5);
  EXPECT_NEAR(h[1] / (-50 * std::exp(-50.0)), 1, 1e-6);
}

TEST(CpuExperts, RoundingAndSimulationAreThoseOfTheirOwnKernels) {
  test::on_each_target([] {
    for (const int64_t width : kWidths) {
      Case c(4, width);
      c.gate[static_cast<size_t>(width)] = std::numeric_limits<float>::quiet_NaN();  // row 1 has a group of NaN
      std::vector<float> wanted = c.h();
      kernels::cpu::round_bf16(wanted.data(), wanted.data(), c.rows * width);
      c.input.round_bf16 = true;
      EXPECT_TRUE(same_bits(c.h(), wanted));
      EXPECT_TRUE(std::isnan(wanted[static_cast<size_t>(width)]));
      kernels::cpu::simulate_groups({wanted.data(), wanted.data(), c.rows, width, 128},
                                    kernels::cpu::BlockFormat::e4m3);
      c.input.simulate = true;
      EXPECT_TRUE(same_bits(c.h(), wanted));
    }
  });
}

TEST(CpuExperts, TheActivationMayStandInThePlaceOfItsInput) {
  Case c(3, 131);
  const std::vector<float> wanted = c.h();
  kernels::cpu::swiglu(c.input, c.gate.data());
  EXPECT_TRUE(same_bits(c.gate, wanted));
}

TEST(CpuExperts, NaNPassesTheClamps) {
  Case c(1, 4);
  c.gate[0] = c.up[1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> h = c.h();
  EXPECT_TRUE(std::isnan(h[0]) && std::isnan(h[1]));
  EXPECT_FALSE(std::isnan(h[2]) || std::isnan(h[3]));
}

struct Slopes {
  std::vector<float> dgate, dup, dweight;
};

Slopes slopes_of(const Case& c) {
  Slopes s{std::vector<float>(c.gate.size(), -1), std::vector<float>(c.gate.size(), -1), c.weight};
  kernels::cpu::swiglu_gradient(c.input, c.dh.data(), {s.dgate.data(), s.dup.data(), s.dweight.data()});
  return s;
}

TEST(CpuExperts, GradientsFollowTheirFormulas) {
  test::on_each_target([] {
    for (const float limit : {0.0f, 10.0f}) {
      for (const int64_t width : kWidths) {
        Case c(3, width);
        c.input.limit = limit;
        const Slopes s = slopes_of(c);
        const double top = limit > 0 ? limit : HUGE_VAL;
        for (int64_t row = 0; row < c.rows; ++row) {
          double dweight = 0, size = 0;
          for (int64_t i = row * width; i < (row + 1) * width; ++i) {
            const auto at = static_cast<size_t>(i);
            const double g = std::min<double>(c.gate[at], top), u = std::clamp<double>(c.up[at], -top, top);
            const double sg = 1 / (1 + std::exp(-g)), dh = c.weight_of(row) * c.dh[at];
            const double slope = sg * (1 + g * (1 - sg));
            // The slope is a difference where g is negative: its error is that of its terms.
            const double slope_size = sg * (1 + std::abs(g) * (1 - sg));
            EXPECT_NEAR(s.dgate[at], c.gate[at] > top ? 0 : dh * u * slope,
                        2 * kActivationError * std::abs(dh * u * slope_size));
            EXPECT_NEAR(s.dup[at], std::abs(c.up[at]) > top ? 0 : dh * g * sg,
                        2 * kActivationError * std::abs(dh * g * sg));
            dweight += g * sg * u * c.dh[at];
            size += std::abs(g * sg * u * c.dh[at]);
          }
          // Chains of width / 16 terms, then 4 halves.
          const double limit_w = (kActivationError + (static_cast<double>(width) / 16 + 5) * 0x1p-24) * size;
          EXPECT_NEAR(s.dweight[static_cast<size_t>(c.pair[static_cast<size_t>(row)])], dweight, limit_w);
        }
      }
    }
  });
}

TEST(CpuExperts, AClampPassesTheGradientAtTheLimitItself) {
  const float beyond = std::nextafter(10.0f, 11.0f);
  const std::vector<float> gate = {10, beyond, 1, 1, 1, 1}, up = {1, 1, 10, beyond, -10, -beyond}, dh(6, 1);
  std::vector<float> dgate(6), dup(6);
  kernels::cpu::swiglu_gradient({gate.data(), up.data(), nullptr, nullptr, 1, 6, 10}, dh.data(),
                                {dgate.data(), dup.data(), nullptr});
  for (const size_t i : {0, 2, 3, 4, 5}) EXPECT_NE(dgate[i], 0) << i;
  for (const size_t i : {0, 1, 2, 4}) EXPECT_NE(dup[i], 0) << i;
  EXPECT_EQ(dgate[1], 0);
  EXPECT_EQ(dup[3], 0);
  EXPECT_EQ(dup[5], 0);
}

TEST(CpuExperts, TheGradientMayStandInThePlaceOfWhatItIsMadeFrom) {
  Case c(3, 131);
  const Slopes wanted = slopes_of(c);
  std::vector<float> dup(c.up.size());
  kernels::cpu::swiglu_gradient(c.input, c.dh.data(), {c.dh.data(), dup.data(), nullptr});
  EXPECT_TRUE(same_bits(c.dh, wanted.dgate));
  EXPECT_TRUE(same_bits(dup, wanted.dup));
}

TEST(CpuExperts, SumsGoFromLeftToRight) {
  test::on_each_target([] {
    for (const int64_t width : kWidths) {
      for (const int64_t per_token : {1, 2, 6}) {
        constexpr int64_t kTokens = 3;
        const std::vector<float> rows = test::noise(kTokens * per_token * width, 1), start = test::noise(3 * width, 2),
                                 end = test::noise(3 * width, 3);
        for (const bool framed : {false, true}) {
          std::vector<float> out(start.size(), -1), wanted;
          for (int64_t t = 0; t < kTokens; ++t) {
            for (int64_t i = 0; i < width; ++i) {
              float sum = rows[static_cast<size_t>(t * per_token * width + i)];
              if (framed) sum = start[static_cast<size_t>(t * width + i)] + sum;
              for (int64_t a = 1; a < per_token; ++a) {
                sum += rows[static_cast<size_t>((t * per_token + a) * width + i)];
              }
              wanted.push_back(framed ? sum + end[static_cast<size_t>(t * width + i)] : sum);
            }
          }
          PairSum sum{framed ? start.data() : nullptr, rows.data(), framed ? end.data() : nullptr, out.data()};
          sum.tokens = kTokens, sum.per_token = per_token, sum.width = width;
          kernels::cpu::sum_pairs(sum);
          EXPECT_TRUE(same_bits(out, wanted));
          sum.round_bf16 = true;
          kernels::cpu::sum_pairs(sum);
          kernels::cpu::round_bf16(wanted.data(), wanted.data(), kTokens * width);
          EXPECT_TRUE(same_bits(out, wanted));
        }
      }
    }
  });
}

TEST(CpuExperts, RowsDoNotDependOnTheirNeighboursOrOnThreads) {
  Case c(200, 300);
  c.input.round_bf16 = c.input.simulate = true;
  const int before = base::num_threads();
  base::set_num_threads(1);
  const std::vector<float> h = c.h();
  const Slopes s = slopes_of(c);
  for (const int threads : {2, 3}) {
    base::set_num_threads(threads);
    EXPECT_TRUE(same_bits(c.h(), h));
    const Slopes again = slopes_of(c);
    EXPECT_TRUE(same_bits(again.dgate, s.dgate) && same_bits(again.dup, s.dup) && same_bits(again.dweight, s.dweight));
  }
  base::set_num_threads(before);
  Swiglu last = c.input;  // the last row alone
  last.gate += 199 * 300, last.up += 199 * 300, last.pair += 199, last.rows = 1;
  std::vector<float> alone(300);
  kernels::cpu::swiglu(last, alone.data());
  EXPECT_TRUE(same_bits(alone, {h.end() - 300, h.end()}));
}

}  // namespace
