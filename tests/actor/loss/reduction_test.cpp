#include "actor/loss/reduction.h"

#include "actor/rl_vectors.h"
#include "base/error.h"

namespace actor {
namespace {

using actor_test::Json;
using actor_test::to_tensor;

struct Parts {
  std::vector<double> losses;   // of each sample, 0 for dropped ones
  std::vector<double> weights;  // d(loss)/d(token)
};

bool is_dropped(const Json& inputs, size_t sample) {
  if (!inputs.contains("dropped")) return false;
  for (const Json& group : inputs["dropped"]) {
    if (group == inputs["group"][sample]) return true;
  }
  return false;
}

Parts reduce(const Json& inputs) {
  const std::string name = inputs.value("reduce", "sample");
  std::vector<SampleCount> counts;
  for (size_t j = 0; j < inputs["mask"].size(); ++j) {
    if (is_dropped(inputs, j)) continue;
    int64_t active = 0;
    for (const Json& bit : inputs["mask"][j]) active += bit.get<int64_t>();
    counts.push_back({active, name == "rollout" ? inputs["rollout"][j].get<int64_t>() : static_cast<int64_t>(j)});
  }
  const Reduction reduction = name == "token"   ? Reduction::token
                              : name == "const" ? Reduction::constant
                                                : Reduction::sample;
  const std::vector<double> weights = token_weights(counts, reduction, inputs.value("max_len", int64_t{0}));
  Parts parts;
  size_t kept = 0;
  for (size_t j = 0; j < inputs["mask"].size(); ++j) {
    const Tensor loss_N = to_tensor(inputs["loss"][j], at::kDouble).requires_grad_();
    if (is_dropped(inputs, j)) {
      parts.losses.push_back(0);
      parts.weights.insert(parts.weights.end(), static_cast<size_t>(loss_N.size(0)), 0.0);
      continue;
    }
    const Tensor weight_N = at::full_like(loss_N, weights[kept++]);
    const Tensor part = reduce_tokens(loss_N, weight_N, to_tensor(inputs["mask"][j], at::kBool));
    part.backward();
    parts.losses.push_back(part.item<double>());
    const std::vector<double> grad = actor_test::values_of(loss_N.grad());
    parts.weights.insert(parts.weights.end(), grad.begin(), grad.end());
  }
  return parts;
}

TEST(Reduction, VectorsAgreeInValueAndGradientForEveryPacking) {
  for (const auto& vector : actor_test::vectors_of("reduction")) {
    const Parts parts = reduce(vector.inputs);
    double total = 0;
    for (const double part : parts.losses) total += part;
    actor_test::expect_near({total}, vector.expected["loss"], actor_test::kLimitF64, 1, vector.id + " loss");
    actor_test::expect_near(parts.weights, vector.expected["weights"], actor_test::kLimitF64, 0,
                            vector.id + " weights");
    if (!vector.inputs.contains("micro_batches")) continue;
    std::vector<double> micro;
    for (const Json& batch : vector.inputs["micro_batches"]) {
      micro.push_back(0);
      for (const Json& j : batch) micro.back() += parts.losses[j.get<size_t>()];
    }
    actor_test::expect_near(micro, vector.expected["micro_losses"], actor_test::kLimitF64, 1, vector.id + " parts");
  }
}

TEST(Reduction, TokenMeanIsTheSameForEverySplit) {  // case loss-01: 0.1, not the mean of means 0.5
  const std::vector<double> weights = token_weights(std::vector<SampleCount>{{1, 0}, {9, 1}}, Reduction::token);
  EXPECT_DOUBLE_EQ(weights[0] * 1.0 + weights[1] * 0.0, 0.1);
}

TEST(Reduction, AMaskedNanIsSelectedAwayInBothDirections) {  // case loss-03
  const Tensor value_N = to_tensor({1, std::nan(""), 3}, at::kDouble).requires_grad_();
  const Tensor active_N = to_tensor({1, 0, 1}, at::kBool);
  const Tensor mean = reduce_tokens(value_N * 1, at::full({3}, 0.5, at::kDouble), active_N);
  mean.backward();
  EXPECT_EQ(mean.item<double>(), 2.0);
  EXPECT_EQ(actor_test::values_of(value_N.grad()), (std::vector<double>{0.5, 0, 0.5}));
}

TEST(Reduction, AGroupWithoutGradientCountsUnlessItIsDropped) {  // case dyn-04: the two denominators, stated
  const std::vector<SampleCount> all{{100, 0}, {100, 1}, {10, 2}, {10, 3}};
  const std::vector<SampleCount> kept(all.begin() + 2, all.end());
  EXPECT_DOUBLE_EQ(token_weights(all, Reduction::token)[2], 1.0 / 220);
  EXPECT_DOUBLE_EQ(token_weights(kept, Reduction::token)[0], 1.0 / 20);
  EXPECT_DOUBLE_EQ(token_weights(all, Reduction::sample)[2], 1.0 / 40);
  EXPECT_DOUBLE_EQ(token_weights(kept, Reduction::sample)[0], 1.0 / 20);
}

TEST(Reduction, NoActiveTokenAnywhereIsALossOfZero) {  // case loss-06
  const std::vector<double> weights = token_weights(std::vector<SampleCount>{{0, 0}, {0, 1}}, Reduction::token);
  for (const double weight : weights) EXPECT_TRUE(std::isfinite(weight));
  const Tensor loss = reduce_tokens(at::full({2}, std::nan(""), at::kDouble), at::full({2}, weights[0], at::kDouble),
                                    at::zeros({2}, at::kBool));
  EXPECT_EQ(loss.item<double>(), 0.0);
}

TEST(Reduction, RefusesAnUnknownName) { EXPECT_THROW(parse_reduction("mean"), base::Error); }

}  // namespace
}  // namespace actor
