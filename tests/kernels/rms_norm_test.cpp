// The norm of rows: kernel against definition, gradients, and that a row's result is its own.
#include "kernels/rms_norm.h"

#include "kernels/op_checks.h"
#include "kernels/reference/rms_norm.h"
#include "kernels/simulate.h"
#include "tensor/golden.h"

namespace {

using kernels::Rounding;
using test::kUnit;
using test::normal;
using test::Tensor;

constexpr double kEps = 1e-6;

// The sum of K squares is 16 chains of K / 16 roundings and 4 more; rinv has half its relative error, and a division, a
// root and two products follow.
double relative_bound(int64_t k) { return (static_cast<double>(k) / 16 + 16) * kUnit; }

Tensor exact(const Tensor& x, const Tensor& weight) {
  return kernels::reference::rms_norm(x.to(at::kDouble), weight.defined() ? weight.to(at::kDouble) : weight, kEps,
                                      Rounding::none);
}

TEST(RmsNorm, KernelIsWithinTheRoundingsOfItsSumFromTheExactValue) {
  for (const int64_t k : {1, 3, 7, 8, 16, 31, 100, 512, 1000}) {
    for (const int64_t rows : {1, 5, 40}) {
      const Tensor x = normal({rows, k}, 1) * 3, weight = normal({k}, 2);
      for (const Tensor& w : {weight, Tensor()}) {
        const Tensor wanted = exact(x, w), fast = kernels::rms_norm(x, w, kEps, Rounding::none);
        EXPECT_LE(test::worst(fast, wanted, wanted.abs() * relative_bound(k)), 1) << rows << " x " << k;
        const Tensor slow = kernels::reference::rms_norm(x, w, kEps, Rounding::none);
        EXPECT_LE(test::worst(slow, wanted, wanted.abs() * relative_bound(k)), 1) << rows << " x " << k;
      }
    }
  }
}

TEST(RmsNorm, HandComputedRow) {  // mean of squares (9 + 16 + 0 + 0) / 4 = 6.25, root 2.5
  const Tensor x = at::tensor({3.0f, -4.0f, 0.0f, 0.0f}), weight = at::tensor({1.0f, 2.0f, 3.0f, 4.0f});
  const Tensor wanted = at::tensor({1.2f, -3.2f, 0.0f, 0.0f});
  EXPECT_LE(test::worst(kernels::rms_norm(x, weight, 0, Rounding::none), wanted, 3.2 * 2 * kUnit), 1);
}

TEST(RmsNorm, RoundsOnceAtTheEnd) {
  for (const int64_t k : {5, 64, 333}) {
    const Tensor x = normal({9, k}, 3), weight = normal({k}, 4);
    const Tensor rounded = kernels::round_bf16(kernels::rms_norm(x, weight, kEps, Rounding::none));
    EXPECT_TRUE(test::same_bits(kernels::rms_norm(x, weight, kEps, Rounding::bf16), rounded));
    EXPECT_TRUE(test::same_bits(kernels::rms_norm(x, Tensor(), kEps, Rounding::bf16),
                                kernels::round_bf16(kernels::rms_norm(x, Tensor(), kEps, Rounding::none))));
  }
}

TEST(RmsNorm, ARowDependsNeitherOnOtherRowsNorOnThreads) {
  const Tensor x = normal({300, 520}, 5), weight = normal({520}, 6);
  const Tensor all = kernels::rms_norm(x, weight, kEps, Rounding::none);
  test::for_thread_counts(
      [&] { EXPECT_TRUE(test::same_bits(kernels::rms_norm(x, weight, kEps, Rounding::none), all)); });
  for (const int64_t row : {0, 17, 299}) {
    EXPECT_TRUE(test::same_bits(kernels::rms_norm(x[row].unsqueeze(0), weight, kEps, Rounding::none)[0], all[row]));
  }
  EXPECT_TRUE(
      test::same_bits(kernels::rms_norm(x.view({3, 100, 520}), weight, kEps, Rounding::none).view_as(all), all));
}

TEST(RmsNorm, GradientOfTheDefinitionMatchesDifferences) {
  test::expect_gradients_match_differences(
      [](const test::Tensors& in) {
        return test::Tensors{kernels::rms_norm(in[0], in[1], kEps, Rounding::none),
                             kernels::rms_norm(in[0], Tensor(), kEps, Rounding::none)};
      },
      {normal({5, 11}, 7), normal({11}, 8)});
}

// dx = rinv * (g - u * mean(g * u)): relative to what it is made of. dw: a chain of 16 rows, then one of blocks.
TEST(RmsNorm, KernelGradientIsWithinItsRoundingsFromTheExactOne) {
  for (const int64_t k : {1, 7, 64, 130}) {
    for (const int64_t rows : {1, 16, 50}) {
      const Tensor x = normal({rows, k}, 9), weight = normal({k}, 10), dy = normal({rows, k}, 901);  // as weighted_sum
      const auto run = [](const test::Tensors& in) {
        return test::Tensors{kernels::rms_norm(in[0], in[1], kEps, Rounding::none)};
      };
      const auto fast = test::gradients(run, {x, weight}, at::kFloat);
      const auto wanted = test::gradients(run, {x, weight}, at::kDouble);
      const Tensor rinv = at::rsqrt(x.square().mean(-1, true) + kEps), u = x * rinv, g = dy * weight;
      const Tensor dx_parts = rinv * (g.abs() + 2 * u.abs() * (g * u).abs().mean(-1, true));
      EXPECT_LE(test::worst(fast[0], wanted[0], dx_parts * relative_bound(k)), 1) << rows << " x " << k;
      const double dw_bound = relative_bound(k) + (16 + static_cast<double>(rows) / 16) * kUnit;
      EXPECT_LE(test::worst(fast[1], wanted[1], (dy * u).abs().sum(0) * dw_bound), 1) << rows << " x " << k;
    }
  }
}

TEST(RmsNorm, GradientsHaveTheSameBitsOnAnyNumberOfThreads) {
  const Tensor x = normal({500, 256}, 12), weight = normal({256}, 13);
  const auto run = [](const test::Tensors& in) {
    return test::Tensors{kernels::rms_norm(in[0], in[1], kEps, Rounding::bf16)};
  };
  const auto wanted = test::gradients(run, {x, weight}, at::kFloat);
  test::for_thread_counts([&] {
    const auto again = test::gradients(run, {x, weight}, at::kFloat);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(test::same_bits(again[i], wanted[i]));
  });
}

TEST(RmsNorm, RoundingPassesTheGradientStraightThrough) {
  const Tensor x = normal({6, 40}, 14), weight = normal({40}, 15);
  const auto with = [&](Rounding rounding) {
    return test::gradients(
        [&](const test::Tensors& in) { return test::Tensors{kernels::rms_norm(in[0], in[1], kEps, rounding)}; },
        {x, weight}, at::kFloat);
  };
  const auto rounded = with(Rounding::bf16), plain = with(Rounding::none);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(test::same_bits(rounded[i], plain[i]));
}

TEST(RmsNorm, NoRowsGiveNoRows) {
  const Tensor x = at::empty({0, 8}).requires_grad_(), weight = at::ones({8}).requires_grad_();
  const Tensor y = kernels::rms_norm(x, weight, kEps, Rounding::bf16);
  EXPECT_EQ(y.sizes().vec(), (std::vector<int64_t>{0, 8}));
  y.sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({8})));
}

TEST(RmsNorm, OnlyTheGradientThatIsAskedForIsMade) {
  const Tensor x = normal({4, 8}, 16), weight = normal({8}, 17).requires_grad_();
  kernels::rms_norm(x, weight, kEps, Rounding::none).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_FALSE(kernels::rms_norm(x, weight.detach(), kEps, Rounding::none).requires_grad());
}

}  // namespace
