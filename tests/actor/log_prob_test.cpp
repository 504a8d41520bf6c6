#include "actor/log_prob.h"

#include "actor/rl_vectors.h"

namespace actor {
namespace {

using actor_test::Json;
using actor_test::to_tensor;

// A gradient of the entropy is a sum of terms p * |log p|, at most 1/e each, that may cancel to nothing: its rounding
// errors are relative to the terms, not to what is left.
const double kEntropyTerm = std::exp(-1.0);

// One row: hidden [1, 1] = 1, head [V, 1] = logits, so the head's gradient is that of the logits.
void check_vectors(at::ScalarType dtype, double limit) {
  for (const auto& vector : actor_test::vectors_of("logprob")) {
    Tensor logits_V = to_tensor(vector.inputs["logits"], dtype);
    if (vector.inputs.contains("bias")) logits_V = logits_V + to_tensor(vector.inputs["bias"], dtype);
    const double temperature = vector.inputs["temperature"];
    const LogProbOptions options{temperature == 0 ? 1 : temperature, vector.inputs.value("valid_vocab", int64_t{0}), 4};
    const Tensor head_V1 = logits_V.unsqueeze(1).requires_grad_();
    const auto run = [&] {
      return chunked_log_probs(at::ones({1, 1}, dtype), head_V1,
                               at::tensor({vector.inputs["token"].get<int64_t>()}, at::kLong), options);
    };
    actor_test::expect_near(run().log_prob_N, vector.expected["lp"], limit, 1, vector.id + " lp");
    actor_test::expect_near(run().entropy_N, vector.expected["entropy"], limit, 1, vector.id + " entropy");
    if (!vector.expected["grad_lp"].is_null()) {
      run().log_prob_N.sum().backward();
      actor_test::expect_near(head_V1.grad(), vector.expected["grad_lp"], limit, 0, vector.id + " grad_lp");
      head_V1.mutable_grad() = Tensor();
    }
    run().entropy_N.sum().backward();
    actor_test::expect_near(head_V1.grad(), vector.expected["grad_entropy"], limit, kEntropyTerm,
                            vector.id + " grad_entropy");
  }
}

TEST(LogProb, VectorsAgreeInF64) { check_vectors(at::kDouble, actor_test::kLimitF64); }
TEST(LogProb, VectorsAgreeInF32) { check_vectors(at::kFloat, actor_test::kLimitF32); }

struct Case {
  Tensor hidden_ND, head_VD, target_N, mix_N, blend_N;
};

Case random_case() {
  at::manual_seed(7);
  return {at::randn({37, 16}, at::kDouble), at::randn({50, 16}, at::kDouble), at::randint(0, 41, {37}, at::kLong),
          at::randn({37}, at::kDouble), at::randn({37}, at::kDouble)};
}

TEST(LogProb, ChunksAgreeWithTheWholeLogSoftmaxAndItsGradients) {
  const Case c = random_case();
  const Tensor hidden = c.hidden_ND.clone().requires_grad_(), head = c.head_VD.clone().requires_grad_();
  const Tensor logits = at::matmul(hidden, head.t()) / 0.7;
  const Tensor log_p = at::log_softmax(logits.slice(1, 0, 41), 1);  // ids 41.. have no token
  const Tensor lp = log_p.gather(1, c.target_N.unsqueeze(1)).squeeze(1), entropy = -(log_p.exp() * log_p).sum(1);
  ((lp * c.mix_N) + (entropy * c.blend_N)).sum().backward();
  for (const int64_t rows : {1, 5, 37, 100}) {
    const Tensor hidden_c = c.hidden_ND.clone().requires_grad_(), head_c = c.head_VD.clone().requires_grad_();
    const LogProbs got = chunked_log_probs(hidden_c, head_c, c.target_N, {0.7, 41, rows});
    ((got.log_prob_N * c.mix_N) + (got.entropy_N * c.blend_N)).sum().backward();
    EXPECT_TRUE(at::allclose(got.log_prob_N, lp, 0, 1e-12)) << rows;
    EXPECT_TRUE(at::allclose(got.entropy_N, entropy, 0, 1e-12)) << rows;
    EXPECT_TRUE(at::allclose(hidden_c.grad(), hidden.grad(), 0, 1e-11)) << rows;
    EXPECT_TRUE(at::allclose(head_c.grad(), head.grad(), 0, 1e-11)) << rows;
  }
}

TEST(LogProb, TheTemperatureDividesTheLogits) {  // case lp-02
  const Tensor head_V1 = to_tensor({2, 1, 0}, at::kFloat).unsqueeze(1);
  const Tensor lp = chunked_log_probs(at::ones({1, 1}), head_V1, at::zeros({1}, at::kLong), {0.5, 0, 8}).log_prob_N;
  EXPECT_NEAR(lp.item<double>(), 4 - std::log(std::exp(4) + std::exp(2) + 1), 1e-6);
}

TEST(LogProb, IdsWithoutATokenAreImpossibleAndTakeNoMass) {  // decisions 8
  const Tensor head_V1 = to_tensor({1, 1, 50}, at::kFloat).unsqueeze(1).requires_grad_();
  const LogProbs got =
      chunked_log_probs(at::ones({2, 1}), head_V1, at::tensor(std::vector<int64_t>{0, 2}, at::kLong), {1, 2, 8});
  EXPECT_NEAR(got.log_prob_N[0].item<double>(), -std::log(2.0), 1e-6);
  EXPECT_EQ(got.log_prob_N[1].item<double>(), -std::numeric_limits<double>::infinity());
  got.log_prob_N[0].backward();
  EXPECT_EQ(head_V1.grad()[2].item<double>(), 0);
}

TEST(LogProb, NoRowsGiveEmptyResultsAndZeroGradients) {
  const Tensor head = at::randn({5, 3}).requires_grad_();
  const LogProbs got = chunked_log_probs(at::empty({0, 3}), head, at::empty({0}, at::kLong), {});
  EXPECT_EQ(got.log_prob_N.numel(), 0);
  got.log_prob_N.sum().backward();
  EXPECT_EQ(head.grad().abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace actor
