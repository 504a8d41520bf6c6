// Routing against the CPU kernels, to the bit, ties and NaN included.
#include "kernels/gpu/router.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/expect_error.h"
#include "kernels/gpu/both_orders.h"

namespace {

using kernels::cpu::RouterInput;
using kernels::cpu::Scoring;
using test::Floats;
using Ids = std::vector<int32_t>;

constexpr Scoring kScorings[] = {Scoring::sqrtsoftplus, Scoring::sigmoid, Scoring::softmax};

RouterInput input_of(const Floats& logits, int64_t experts, int64_t per_token, Scoring scoring) {
  RouterInput input;
  input.logits = logits.data();
  input.tokens = static_cast<int64_t>(logits.size()) / experts;
  input.experts = experts;
  input.per_token = per_token;
  input.scoring = scoring;
  input.factor = 1.5f;
  return input;
}

Ids unset_ids(const RouterInput& input) { return Ids(static_cast<size_t>(input.tokens * input.per_token), -7); }

// Logits with many ties, a row of equal ones, one with NaN, one with zeros of both signs.
Floats tied_logits(int64_t tokens, int64_t experts) {
  Floats logits = test::noise(tokens * experts, 4, 2);
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / experts;
    if (row % 5 == 1) logits[i] = std::round(logits[i]);
    if (row % 5 == 2) logits[i] = 1.25f;
    if (row % 5 == 3 && i % 3 == 0) logits[i] = test::kNan;
    if (row % 5 == 4) logits[i] = i % 2 == 0 ? 0.0f : -0.0f;
  }
  return logits;
}

struct Case {
  int64_t tokens, experts, per_token;
};
constexpr Case kCases[] = {{0, 4, 2},   {5, 1, 1},    {10, 5, 5},   {10, 16, 6},
                           {10, 71, 6}, {10, 256, 8}, {5, 384, 64}, {5, 2048, 7}};

TEST(GpuRouter, ChoosesAndWeighsAsTheCpuKernel) {
  SKIP_WITHOUT_FMA();
  for (const Case& c : kCases) {
    const Floats logits = tied_logits(c.tokens, c.experts);
    Floats bias = test::noise(c.experts, 5, .1f);
    for (size_t e = 0; e < bias.size(); e += 2) bias[e] = 0;
    for (const Scoring scoring : kScorings) {
      RouterInput input = input_of(logits, c.experts, c.per_token, scoring);
      for (const bool normalise : {true, false}) {
        input.normalise = normalise;
        Ids wanted = unset_ids(input);
        kernels::cpu::best_experts(input, bias.data(), wanted.data());
        Floats weight = test::unset(c.tokens * c.per_token);
        kernels::cpu::expert_weights(input, wanted.data(), weight.data());
        test::in_both_orders([&] {
          Ids own = unset_ids(input);
          kernels::gpu::best_experts(input, bias.data(), own.data(), {});
          EXPECT_EQ(own, wanted) << c.experts;
          Floats own_weight = test::unset(c.tokens * c.per_token);
          kernels::gpu::expert_weights(input, wanted.data(), own_weight.data(), {});
          test::expect_same(own_weight, weight, "weight");
        });
      }
    }
  }
}

TEST(GpuRouter, InfiniteKeysAreOrderedToo) {
  const Floats logits = {1, 2, 3, 4, 5}, bias = {-test::kInfinity, 0, test::kInfinity, 0, -test::kInfinity};
  for (const int64_t per_token : {1, 3, 4, 5}) {
    const RouterInput input = input_of(logits, 5, per_token, Scoring::sigmoid);
    Ids wanted = unset_ids(input), own = wanted;
    kernels::cpu::best_experts(input, bias.data(), wanted.data());
    kernels::gpu::best_experts(input, bias.data(), own.data(), {});
    EXPECT_EQ(own, wanted);
  }
}

TEST(GpuRouter, AnIdThatIsNoExpertHasWeightNaN) {
  const Floats logits = test::noise(4, 1);
  const RouterInput input = input_of(logits, 4, 2, Scoring::sigmoid);
  for (const Ids& expert : {Ids{1, 4}, Ids{-1, 2}}) {
    Floats weight = test::unset(2);
    weight = {0, 0};
    kernels::gpu::expert_weights(input, expert.data(), weight.data(), {});
    EXPECT_TRUE(std::isnan(weight[0]) && std::isnan(weight[1]));
  }
}

TEST(GpuRouter, MoreExpertsThanThereIsRoomForAreRefused) {
  RouterInput input;
  input.experts = 2049, input.per_token = 1;
  test::expect_error(base::Code::internal, {"experts", "2049", "2048"},
                     [&] { kernels::gpu::best_experts(input, nullptr, nullptr, {}); });
  input.experts = 100, input.per_token = 65;
  test::expect_error(base::Code::internal, {"per token", "65"},
                     [&] { kernels::gpu::expert_weights(input, nullptr, nullptr, {}); });
}

}  // namespace
