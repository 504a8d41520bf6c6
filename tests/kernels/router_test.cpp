// Routing: kernels against the definition, gradients, ties, tables of hash layers.
#include "kernels/router.h"

#include "base/error.h"
#include "kernels/op_checks.h"
#include "kernels/reference/router.h"
#include "tensor/golden.h"

namespace {

using kernels::RouterOptions;
using kernels::Scoring;
using test::kUnit;
using test::normal;
using test::Tensor;

constexpr Scoring kScorings[] = {Scoring::sqrtsoftplus, Scoring::sigmoid, Scoring::softmax};

RouterOptions options_of(Scoring scoring, int64_t per_token = 6, bool normalise = true) {
  RouterOptions options;
  options.scoring = scoring;
  options.experts_per_token = per_token;
  options.normalise = normalise;
  options.factor = 1.5;
  return options;
}

// Scores have an error of 5 units in the last place (kernels/cpu/router_test); the sum of a softmax adds one rounding a
// term, that of the chosen one each, then a division and a product.
double relative_bound(Scoring scoring, int64_t experts, int64_t per_token) {
  const int64_t terms = per_token + (scoring == Scoring::softmax ? experts : 0);
  return (20.0 + static_cast<double>(terms)) * kUnit;
}

TEST(Router, ChoicesAreThoseOfTheDefinition) {
  for (const Scoring scoring : kScorings) {
    for (const int64_t experts : {6, 16, 33, 256}) {
      const Tensor logits = normal({50, experts}, 1), bias = normal({experts}, 2) * .05;
      const RouterOptions options = options_of(scoring);
      const Tensor chosen = kernels::best_experts(logits, bias, options);
      EXPECT_EQ(chosen.scalar_type(), at::kInt);
      EXPECT_TRUE(at::equal(chosen, kernels::reference::best_experts(logits, bias, options))) << experts;
    }
  }
}

TEST(Router, TiesGoToTheLowerId) {
  const Tensor logits = at::tensor({1.0f, 2.0f, 1.0f, 1.0f, 2.0f, 1.0f}).unsqueeze(0), bias = at::zeros({6});
  const Tensor wanted = at::tensor({0, 1, 4}, at::kInt).unsqueeze(0);
  EXPECT_TRUE(at::equal(kernels::best_experts(logits, bias, options_of(Scoring::sqrtsoftplus, 3)), wanted));
  EXPECT_TRUE(at::equal(kernels::reference::best_experts(logits, bias, options_of(Scoring::sqrtsoftplus, 3)), wanted));
}

TEST(Router, TheBiasMovesTheChoiceButNotTheWeights) {
  const Tensor logits = at::tensor({2.0f, -1.0f, .5f, 3.0f}).unsqueeze(0), bias = at::tensor({0.0f, 9.0f, 0.0f, 0.0f});
  const RouterOptions options = options_of(Scoring::sqrtsoftplus, 2);
  const Tensor chosen = kernels::best_experts(logits, bias, options);
  EXPECT_TRUE(at::equal(chosen, at::tensor({1, 3}, at::kInt).unsqueeze(0)));
  const Tensor wanted = at::tensor({.5596979, 1.7460204}, at::kDouble);  // spec, appendix B
  EXPECT_LE(test::worst(kernels::expert_weights(logits, chosen, options)[0], wanted / wanted.sum() * 1.5, 1e-7), 1);
}

TEST(Router, WeightsAreWithinTheirRoundingsFromTheExactOnes) {
  for (const Scoring scoring : kScorings) {
    for (const bool normalise : {false, true}) {
      for (const int64_t experts : {6, 33, 256}) {
        const RouterOptions options = options_of(scoring, 6, normalise);
        const Tensor logits = normal({20, experts}, 3) * 4;
        const Tensor chosen = kernels::best_experts(logits, at::zeros({experts}), options);
        const Tensor wanted = kernels::reference::expert_weights(logits.to(at::kDouble), chosen, options);
        const Tensor bound = wanted * relative_bound(scoring, experts, 6);
        EXPECT_LE(test::worst(kernels::expert_weights(logits, chosen, options), wanted, bound), 1) << experts;
        EXPECT_LE(test::worst(kernels::reference::expert_weights(logits, chosen, options), wanted, bound), 1);
      }
    }
  }
}

TEST(Router, GradientOfTheDefinitionMatchesDifferences) {
  for (const Scoring scoring : kScorings) {
    const RouterOptions options = options_of(scoring, 3);
    const Tensor logits = normal({4, 9}, 4) * 2;
    const Tensor chosen = kernels::best_experts(logits, at::zeros({9}), options);
    test::expect_gradients_match_differences(
        [&](const test::Tensors& in) { return test::Tensors{kernels::expert_weights(in[0], chosen, options)}; },
        {logits});
  }
}

// dl = slope * factor / sum * (dw - mean): relative to what it is made of.
TEST(Router, KernelGradientIsWithinItsRoundingsFromTheExactOne) {
  for (const Scoring scoring : kScorings) {
    for (const bool normalise : {false, true}) {
      const RouterOptions options = options_of(scoring, 6, normalise);
      const Tensor logits = normal({30, 40}, 5) * 3;
      const Tensor chosen = kernels::best_experts(logits, at::zeros({40}), options);
      const auto run = [&](const test::Tensors& in) {
        return test::Tensors{kernels::expert_weights(in[0], chosen, options)};
      };
      const Tensor fast = test::gradients(run, {logits}, at::kFloat)[0];
      const Tensor wanted = test::gradients(run, {logits}, at::kDouble)[0];
      const Tensor largest = std::get<0>(wanted.abs().max(1, true));  // of a token: its terms are no larger by 2^3
      EXPECT_LE(test::worst(fast, wanted, largest * 8 * relative_bound(scoring, 40, 6)), 1);
      if (scoring != Scoring::softmax) {
        EXPECT_EQ((fast != 0).sum().item<int64_t>(), chosen.numel());
      }
    }
  }
}

TEST(Router, NeitherTokensNorThreadsTouchATokensBits) {
  const RouterOptions options = options_of(Scoring::sqrtsoftplus);
  const Tensor logits = normal({400, 64}, 6), bias = normal({64}, 7) * .1;
  const Tensor chosen = kernels::best_experts(logits, bias, options);
  const Tensor weight = kernels::expert_weights(logits, chosen, options);
  test::for_thread_counts([&] {
    EXPECT_TRUE(at::equal(kernels::best_experts(logits, bias, options), chosen));
    EXPECT_TRUE(test::same_bits(kernels::expert_weights(logits, chosen, options), weight));
  });
  for (const int64_t t : {0, 13, 399}) {
    const Tensor row = logits.narrow(0, t, 1), ids = chosen.narrow(0, t, 1);
    EXPECT_TRUE(at::equal(kernels::best_experts(row, bias, options), ids));
    EXPECT_TRUE(test::same_bits(kernels::expert_weights(row, ids, options), weight.narrow(0, t, 1)));
  }
}

TEST(Router, TablesOfBothIntegersAreReadInAnyOrderOfARow) {
  const Tensor table = at::tensor({4, 0, 2, 1, 3, 0, 2, 4, 1}, at::kLong).view({3, 3});
  const Tensor ids = at::tensor({2, 0, 2, 1}, at::kLong);
  const Tensor wanted = at::tensor({1, 2, 4, 0, 2, 4, 1, 2, 4, 0, 1, 3}, at::kInt).view({4, 3});
  EXPECT_TRUE(at::equal(kernels::hashed_experts(table, ids), wanted));
  EXPECT_TRUE(at::equal(kernels::hashed_experts(table.to(at::kInt), ids), wanted));
  EXPECT_TRUE(at::equal(kernels::reference::hashed_experts(table, ids), wanted));
}

TEST(Router, ABadRowOfATableIsRefused) {
  const Tensor ids = at::tensor({0}, at::kLong);
  EXPECT_THROW(kernels::hashed_experts(at::tensor({1, 1}, at::kLong).view({1, 2}), ids), base::Error);
  EXPECT_THROW(kernels::hashed_experts(at::tensor({-1, 1}, at::kLong).view({1, 2}), ids), base::Error);
  EXPECT_THROW(kernels::hashed_experts(at::tensor({0, 1}, at::kLong).view({1, 2}), ids + 1), base::Error);
}

TEST(Router, AnExpertThatDoesNotExistIsRefused) {
  const Tensor logits = at::zeros({1, 4});
  for (const int id : {-1, 4}) {
    EXPECT_THROW(kernels::expert_weights(logits, at::full({1, 1}, id, at::kInt), options_of(Scoring::sqrtsoftplus, 1)),
                 base::Error);
  }
}

TEST(Router, NoTokensGiveNoRows) {
  const RouterOptions options = options_of(Scoring::sqrtsoftplus);
  const Tensor logits = at::empty({0, 8}), chosen = kernels::best_experts(logits, at::zeros({8}), options);
  EXPECT_EQ(chosen.sizes(), (std::vector<int64_t>{0, 6}));
  EXPECT_EQ(kernels::expert_weights(logits, chosen, options).sizes(), (std::vector<int64_t>{0, 6}));
}

}  // namespace
