// Queries, keys and turns: kernels against definitions and against their own parts, gradients.
#include "kernels/rope.h"

#include "kernels/op_checks.h"
#include "kernels/reference/rope.h"
#include "kernels/rms_norm.h"
#include "kernels/simulate.h"
#include "tensor/golden.h"

namespace {

using kernels::Layout;
using kernels::RopeTable;
using kernels::Rounding;
using test::kUnit;
using test::normal;
using test::Tensor;

constexpr double kEps = 1e-6;

RopeTable table_of(int64_t positions, int64_t pairs) {
  const Tensor frequency = at::pow(1e4, at::arange(pairs, at::kDouble) * (-1.0 / static_cast<double>(pairs)));
  const Tensor angle = at::arange(positions, at::kFloat).unsqueeze(1) * frequency.to(at::kFloat);
  return {angle.cos(), angle.sin()};
}

Layout layout_of(std::vector<int32_t> positions) {
  Layout layout;
  layout.num_tokens = static_cast<int64_t>(positions.size());
  layout.position_T = std::move(positions);
  return layout;
}

Layout some_tokens(int64_t count) {
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < count; ++t) positions.push_back(static_cast<int32_t>(t * 7 % 50));
  return layout_of(positions);
}

TEST(Rotate, GoldenPairOfTheSpec) {  // appendix B: t = 7, f = 1
  const Layout layout = layout_of({7});
  const Tensor x = at::tensor({5.0f, 1.0f, 0.0f}).view({1, 3});
  const Tensor turned = kernels::rotate(x, layout, table_of(8, 1), false, Rounding::none);
  EXPECT_LE(test::worst(turned[0], at::tensor({5.0f, 0.7539023f, 0.6569866f}), 1e-7), 1);
  EXPECT_LE(test::worst(kernels::rotate(turned, layout, table_of(8, 1), true, Rounding::none), x, 1e-7), 1);
}

TEST(Rotate, KernelEqualsTheDefinitionToTheBit) {
  for (const int64_t pairs : {1, 3, 4, 8, 13, 32}) {
    for (const int64_t plain : {0, 5, 64}) {
      for (const int64_t heads : {1, 3}) {
        const Layout layout = some_tokens(9);
        const RopeTable table = table_of(50, pairs);
        const Tensor x = normal({9, heads, plain + 2 * pairs}, 1);
        for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
          for (const bool inverse : {false, true}) {
            EXPECT_TRUE(test::same_bits(kernels::rotate(x, layout, table, inverse, rounding),
                                        kernels::reference::rotate(x, layout, table, inverse, rounding)))
                << pairs << " pairs after " << plain;
          }
        }
      }
    }
  }
}

TEST(Rotate, TwoDimsAreRowsOfOneHead) {
  const Layout layout = some_tokens(5);
  const RopeTable table = table_of(50, 4);
  const Tensor x = normal({5, 12}, 2);
  EXPECT_TRUE(test::same_bits(kernels::rotate(x, layout, table, false, Rounding::none),
                              kernels::rotate(x.unsqueeze(1), layout, table, false, Rounding::none).squeeze(1)));
}

TEST(Queries, EqualANormThenATurnToTheBit) {
  for (const int64_t heads : {1, 4}) {
    for (const int64_t k : {8, 20, 64}) {
      const Layout layout = some_tokens(11);
      const RopeTable table = table_of(50, 4);
      const Tensor x = normal({11, heads * k}, 3);
      for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
        const Tensor normed = kernels::rms_norm(x.view({11, heads, k}), Tensor(), kEps, rounding);
        EXPECT_TRUE(test::same_bits(kernels::query_heads(x, heads, kEps, layout, table, rounding),
                                    kernels::rotate(normed, layout, table, false, rounding)));
      }
    }
  }
}

TEST(Keys, EqualANormATurnAndASimulationToTheBit) {
  for (const int64_t plain : {0, 8, 48, 100, 448}) {
    const Layout layout = some_tokens(6);
    const RopeTable table = table_of(50, 6);
    const Tensor x = normal({6, plain + 12}, 4) * 3, weight = normal({plain + 12}, 5);
    for (const bool simulate : {false, true}) {
      const kernels::KvOptions options{kEps, Rounding::bf16, simulate};
      Tensor wanted =
          kernels::rotate(kernels::rms_norm(x, weight, kEps, Rounding::bf16), layout, table, false, Rounding::bf16);
      if (simulate && plain > 0) {
        const Tensor stored = kernels::simulate_groups(wanted.narrow(1, 0, plain), 64, tensor::BlockFormat::e4m3);
        wanted = at::cat({stored, wanted.narrow(1, plain, 12)}, 1);
      }
      EXPECT_TRUE(test::same_bits(kernels::kv_rows(x, weight, options, layout, table), wanted)) << plain;
    }
  }
}

// Two norms with sums in other orders, then a turn that mixes two values: see rms_norm_test.cpp.
TEST(QueriesAndKeys, AreWithinTheRoundingsOfTheNormFromTheDefinition) {
  const Layout layout = some_tokens(20);
  const RopeTable table = table_of(50, 8);
  const Tensor x = normal({20, 3 * 40}, 6), kv = normal({20, 40}, 7), weight = normal({40}, 8);
  const double bound = (40.0 / 16 + 20) * kUnit;
  const Tensor query = kernels::reference::query_heads(x.to(at::kDouble), 3, kEps, layout, table, Rounding::none);
  EXPECT_LE(test::worst(kernels::query_heads(x, 3, kEps, layout, table, Rounding::none), query, 5 * bound), 1);
  const Tensor key = kernels::reference::kv_rows(kv.to(at::kDouble), weight.to(at::kDouble), {}, layout, table);
  EXPECT_LE(test::worst(kernels::kv_rows(kv, weight, {}, layout, table), key, 10 * bound), 1);
}

test::Function all_ops(const Layout& layout, const RopeTable& table) {
  return [&layout, &table](const test::Tensors& in) {
    const int64_t tokens = layout.num_tokens;
    return test::Tensors{
        kernels::query_heads(in[0], 3, kEps, layout, table, Rounding::none),
        kernels::kv_rows(in[1], in[2], {}, layout, table),
        kernels::rotate(in[0].view({tokens, 3, -1}), layout, table, /*inverse=*/true, Rounding::none),
    };
  };
}

TEST(QueriesAndKeys, GradientsOfTheDefinitionsMatchDifferences) {
  const Layout layout = some_tokens(4);
  const RopeTable table = table_of(50, 3);
  test::expect_gradients_match_differences(all_ops(layout, table),
                                           {normal({4, 27}, 9), normal({4, 9}, 10), normal({9}, 11)});
}

// Gradients are sums of a few hundred products of about 1, largest about 30.
TEST(QueriesAndKeys, KernelGradientsAgreeWithTheExactOnes) {
  for (const int64_t tokens : {1, 17, 60}) {
    const Layout layout = some_tokens(tokens);
    const RopeTable table = table_of(50, 6);
    const test::Tensors inputs = {normal({tokens, 3 * 29}, 12), normal({tokens, 29}, 13), normal({29}, 14)};
    const auto fast = test::gradients(all_ops(layout, table), inputs, at::kFloat);
    const auto wanted = test::gradients(all_ops(layout, table), inputs, at::kDouble);
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_LE(test::worst(fast[i], wanted[i], 30 * 40 * kUnit), 1) << i;
  }
}

TEST(QueriesAndKeys, RoundingAndSimulationPassGradientsStraightThrough) {
  const Layout layout = some_tokens(7);
  const RopeTable table = table_of(50, 4);
  const test::Tensors inputs = {normal({7, 72}, 15), normal({72}, 16)};
  const auto with = [&](const kernels::KvOptions& options) {
    return test::gradients(
        [&](const test::Tensors& in) {
          return test::Tensors{kernels::kv_rows(in[0], in[1], options, layout, table),
                               kernels::query_heads(in[0], 2, kEps, layout, table, options.rounding),
                               kernels::rotate(in[0], layout, table, true, options.rounding)};
        },
        inputs, at::kFloat);
  };
  const auto plain = with({}), rounded = with({kEps, Rounding::bf16, true});
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(test::same_bits(plain[i], rounded[i]));
}

TEST(QueriesAndKeys, HaveTheSameBitsOnAnyNumberOfThreadsAndInAnyBatch) {
  const Layout layout = some_tokens(200);
  const RopeTable table = table_of(50, 16);
  const test::Tensors inputs = {normal({200, 3 * 64}, 17), normal({200, 64}, 18), normal({64}, 19)};
  const auto values = all_ops(layout, table)(inputs);
  const auto slopes = test::gradients(all_ops(layout, table), inputs, at::kFloat);
  test::for_thread_counts([&] {
    const auto again = all_ops(layout, table)(inputs);
    const auto slopes_again = test::gradients(all_ops(layout, table), inputs, at::kFloat);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(test::same_bits(again[i], values[i]));
      EXPECT_TRUE(test::same_bits(slopes_again[i], slopes[i]));
    }
  });
  const Layout alone = layout_of({layout.position_T[33]});
  const auto row = all_ops(alone, table)({inputs[0][33].unsqueeze(0), inputs[1][33].unsqueeze(0), inputs[2]});
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(test::same_bits(row[i][0], values[i][33]));
}

TEST(QueriesAndKeys, NoTokensGiveNoRows) {
  const Layout layout = layout_of({});
  const RopeTable table = table_of(4, 2);
  EXPECT_EQ(kernels::query_heads(at::empty({0, 12}), 2, kEps, layout, table, Rounding::bf16).sizes().vec(),
            (std::vector<int64_t>{0, 2, 6}));
  EXPECT_EQ(kernels::kv_rows(at::empty({0, 6}), at::ones({6}), {}, layout, table).size(0), 0);
  EXPECT_EQ(kernels::rotate(at::empty({0, 2, 6}), layout, table, false, Rounding::none).size(0), 0);
}

TEST(QueriesAndKeys, APositionBeyondTheTableIsRefused) {
  const Layout layout = layout_of({4});
  EXPECT_THROW(kernels::rotate(at::ones({1, 4}), layout, table_of(4, 2), false, Rounding::none), base::Error);
}

}  // namespace
