#include "kernels/log_prob.h"

#include "actor/rl_vectors.h"
#include "base/parallel.h"
#include "kernels/reference/log_prob.h"

namespace kernels {
namespace {

using actor_test::Json;
using actor_test::to_tensor;
using cpu::WeightFormat;

// A gradient of the entropy is a sum of terms p * |log p|, at most 1/e each, that may cancel to nothing: its rounding
// errors are relative to the terms, not to what is left.
const double kEntropyTerm = std::exp(-1.0);

// True from `valid` on; undefined for 0.
Tensor absent_from(int64_t valid, int64_t vocab) { return valid > 0 ? at::arange(vocab) >= valid : Tensor(); }

// f64 has no kernel.
LogProbs chunked(const Tensor& hidden_ND, const Tensor& head_VD, const Tensor& target_N,
                 const LogProbOptions& options) {
  if (head_VD.scalar_type() == at::kDouble) return reference::chunked_log_probs(hidden_ND, head_VD, target_N, options);
  return chunked_log_probs(hidden_ND, Matrix::trainable(head_VD, WeightFormat::f32, {}), target_N, options);
}

// One row: hidden [1, 1] = 1, head [V, 1] = logits, so the head's gradient is that of the logits.
void check_vectors(at::ScalarType dtype, double limit) {
  for (const auto& vector : actor_test::vectors_of("logprob")) {
    Tensor logits_V = to_tensor(vector.inputs["logits"], dtype);
    if (vector.inputs.contains("bias")) logits_V = logits_V + to_tensor(vector.inputs["bias"], dtype);
    const double temperature = vector.inputs["temperature"];
    const LogProbOptions options{temperature == 0 ? 1 : temperature,
                                 absent_from(vector.inputs.value("valid_vocab", int64_t{0}), logits_V.size(0)), 4};
    const Tensor head_V1 = logits_V.unsqueeze(1).contiguous().requires_grad_();
    const auto run = [&] {
      return chunked(at::ones({1, 1}, dtype), head_V1, at::tensor({vector.inputs["token"].get<int64_t>()}, at::kLong),
                     options);
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

  Case(int64_t n, int64_t d, int64_t v, int64_t valid, at::ScalarType dtype) {
    at::manual_seed(7);
    hidden_ND = at::randn({n, d}, dtype);
    head_VD = at::randn({v, d}, dtype).to(at::kBFloat16).to(dtype);  // any format can hold it
    target_N = at::randint(0, valid, {n}, at::kLong);
    mix_N = at::randn({n}, dtype);
    blend_N = at::randn({n}, dtype);
  }
};

struct Outcome {
  Tensor log_prob_N, entropy_N, grad_hidden_ND, grad_head_VD;
};

// run(hidden, head) with gradients of a mix of both results.
template <class Run>
Outcome outcome_of(const Case& c, at::ScalarType dtype, const Run& run) {
  const Tensor hidden_ND = c.hidden_ND.to(dtype).clone().requires_grad_();
  const Tensor head_VD = c.head_VD.to(dtype).clone().requires_grad_();
  const LogProbs got = run(hidden_ND, head_VD);
  ((got.log_prob_N * c.mix_N.to(dtype)) + (got.entropy_N * c.blend_N.to(dtype))).sum().backward();
  return {got.log_prob_N.detach(), got.entropy_N.detach(), hidden_ND.grad(), head_VD.grad()};
}

void expect_same(const Outcome& got, const Outcome& want, const std::string& what) {
  EXPECT_TRUE(at::equal(got.log_prob_N, want.log_prob_N)) << what;
  EXPECT_TRUE(at::equal(got.entropy_N, want.entropy_N)) << what;
  EXPECT_TRUE(at::equal(got.grad_hidden_ND, want.grad_hidden_ND)) << what;
  EXPECT_TRUE(at::equal(got.grad_head_VD, want.grad_head_VD)) << what;
}

void expect_close(const Outcome& got, const Outcome& want, double value_limit, double gradient_limit) {
  const auto close = [](const Tensor& a, const Tensor& b, double limit) {
    return at::allclose(a.to(at::kDouble), b.to(at::kDouble), 0, limit);
  };
  EXPECT_TRUE(close(got.log_prob_N, want.log_prob_N, value_limit));
  EXPECT_TRUE(close(got.entropy_N, want.entropy_N, value_limit));
  EXPECT_TRUE(close(got.grad_hidden_ND, want.grad_hidden_ND, gradient_limit));
  EXPECT_TRUE(close(got.grad_head_VD, want.grad_head_VD, gradient_limit));
}

Outcome whole_f64(const Case& c, const LogProbOptions& options) {
  return outcome_of(c, at::kDouble, [&](const Tensor& hidden_ND, const Tensor& head_VD) {
    return reference::log_probs(hidden_ND, head_VD, c.target_N, options);
  });
}

TEST(LogProb, TheDefinitionIsLogSoftmaxOverTheIdsThatExist) {
  const Case c(37, 16, 50, 41, at::kDouble);
  const Outcome want = outcome_of(c, at::kDouble, [&](const Tensor& hidden_ND, const Tensor& head_VD) -> LogProbs {
    const Tensor log_p = at::log_softmax((at::matmul(hidden_ND, head_VD.t()) / 0.7).slice(1, 0, 41), 1);
    return {log_p.gather(1, c.target_N.unsqueeze(1)).squeeze(1), -(log_p.exp() * log_p).sum(1)};
  });
  expect_close(whole_f64(c, {0.7, absent_from(41, 50), 8}), want, 1e-12, 1e-11);
}

TEST(LogProb, ChunksOfTheReferenceAgreeWithTheWhole) {
  const Case c(37, 16, 50, 41, at::kDouble);
  for (const int64_t rows : {1, 5, 37, 100}) {
    const LogProbOptions options{0.7, absent_from(41, 50), rows};
    const Outcome got = outcome_of(c, at::kDouble, [&](const Tensor& hidden_ND, const Tensor& head_VD) {
      return reference::chunked_log_probs(hidden_ND, head_VD, c.target_N, options);
    });
    expect_close(got, whole_f64(c, options), 1e-12, 1e-11);
  }
}

TEST(LogProb, FiniteDifferencesAgreeWithTheGradientOfTheReference) {
  const Case c(3, 4, 9, 8, at::kDouble);
  const LogProbOptions options{0.7, absent_from(8, 9), 2};
  const auto loss = [&](const Tensor& hidden_ND, const Tensor& head_VD) {
    const LogProbs got = reference::log_probs(hidden_ND, head_VD, c.target_N, options);
    return ((got.log_prob_N * c.mix_N) + (got.entropy_N * c.blend_N)).sum().item<double>();
  };
  const auto check = [&](const Tensor& values, const Tensor& gradient) {
    const Tensor flat = values.view({-1});
    for (int64_t i = 0; i < flat.size(0); ++i) {
      const double before = flat[i].item<double>(), step = 1e-6;
      flat[i] = before + step;
      const double up = loss(c.hidden_ND, c.head_VD);
      flat[i] = before - step;
      const double down = loss(c.hidden_ND, c.head_VD);
      flat[i] = before;
      EXPECT_NEAR((up - down) / (2 * step), gradient.reshape({-1})[i].item<double>(), 1e-7);
    }
  };
  const Outcome analytic = whole_f64(c, options);
  check(c.hidden_ND, analytic.grad_hidden_ND);
  check(c.head_VD, analytic.grad_head_VD);
}

Outcome kernel(const Case& c, WeightFormat format, const LogProbOptions& options) {
  return outcome_of(c, at::kFloat, [&](const Tensor& hidden_ND, const Tensor& head_VD) {
    return chunked_log_probs(hidden_ND, Matrix::trainable(head_VD, format, {}), c.target_N, options);
  });
}

// Logits of D products of normal values err by at most D * 2^-24 * |logit|, |logit| < 8 sqrt(D); what is made of them
// by ten times that; a gradient sums V or N such terms, each times a normal value.
TEST(LogProb, TheKernelAgreesWithTheReference) {
  for (const auto& [n, d, v] : std::vector<std::array<int64_t, 3>>{{1, 1, 2}, {37, 48, 1000}, {70, 33, 4099}}) {
    const Case c(n, d, v, v - 1, at::kFloat);
    const LogProbOptions options{0.9, absent_from(v - 1, v), 16};
    const double size = static_cast<double>(d);
    const double limit = 10 * 0x1p-24 * size * 8 * std::sqrt(size);
    for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16}) {
      expect_close(kernel(c, format, options), whole_f64(c, options), limit, 5 * limit);
    }
  }
}

TEST(LogProb, ChunksAndThreadsDoNotChangeABit) {
  const Case c(70, 32, 2100, 2100, at::kFloat);
  const int before = base::num_threads();
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16}) {
    base::set_num_threads(1);
    const Outcome alone = kernel(c, format, {0.8, {}, 70});
    for (const int threads : {1, 2, 3}) {
      base::set_num_threads(threads);
      for (const int64_t rows : {1, 7, 256}) expect_same(kernel(c, format, {0.8, {}, rows}), alone, "rows");
    }
  }
  base::set_num_threads(before);
}

TEST(LogProb, WithoutAGraphTheValuesAreTheSame) {
  const Case c(20, 8, 100, 100, at::kFloat);
  const Matrix head = Matrix::trainable(c.head_VD.clone(), WeightFormat::bf16, {});
  const LogProbs plain = chunked_log_probs(c.hidden_ND, head, c.target_N, {1.1, {}, 8});
  EXPECT_FALSE(plain.log_prob_N.requires_grad());
  const Outcome want = kernel(c, WeightFormat::bf16, {1.1, {}, 8});
  EXPECT_TRUE(at::equal(plain.log_prob_N, want.log_prob_N));
  EXPECT_TRUE(at::equal(plain.entropy_N, want.entropy_N));
}

TEST(LogProb, AHeadThatDoesNotLearnPassesGradientsOnWithoutTakingOne) {
  const Case c(5, 8, 30, 30, at::kFloat);
  const Matrix head = Matrix::trainable(c.head_VD.clone(), WeightFormat::f32, {});  // its leaf asks for no gradient
  const Tensor hidden_ND = c.hidden_ND.clone().requires_grad_();
  chunked_log_probs(hidden_ND, head, c.target_N, {}).log_prob_N.sum().backward();
  EXPECT_TRUE(hidden_ND.grad().abs().sum().item<double>() > 0);
  EXPECT_FALSE(head.leaf().grad().defined());
}

TEST(LogProb, TheTemperatureDividesTheLogits) {  // case lp-02
  const Tensor head_V1 = to_tensor({2, 1, 0}, at::kFloat).unsqueeze(1);
  const Tensor lp = chunked(at::ones({1, 1}), head_V1, at::zeros({1}, at::kLong), {0.5, {}, 8}).log_prob_N;
  EXPECT_NEAR(lp.item<double>(), 4 - std::log(std::exp(4) + std::exp(2) + 1), 1e-6);
}

TEST(LogProb, IdsWithoutATokenAreImpossibleAndTakeNoMass) {  // decisions 8
  const Tensor head_V1 = to_tensor({1, 1, 50}, at::kFloat).unsqueeze(1).requires_grad_();
  const LogProbs got =
      chunked(at::ones({2, 1}), head_V1, at::tensor(std::vector<int64_t>{0, 2}, at::kLong), {1, absent_from(2, 3), 8});
  EXPECT_NEAR(got.log_prob_N[0].item<double>(), -std::log(2.0), 1e-6);
  EXPECT_EQ(got.log_prob_N[1].item<double>(), -std::numeric_limits<double>::infinity());
  got.log_prob_N[0].backward();
  EXPECT_EQ(head_V1.grad()[2].item<double>(), 0);
}

TEST(LogProb, NoRowsGiveEmptyResultsAndZeroGradients) {
  const Tensor head = at::randn({5, 3}).requires_grad_();
  const LogProbs got = chunked(at::empty({0, 3}), head, at::empty({0}, at::kLong), {});
  EXPECT_EQ(got.log_prob_N.numel(), 0);
  got.log_prob_N.sum().backward();
  EXPECT_EQ(head.grad().abs().sum().item<double>(), 0);
}

TEST(LogProb, RefusesATargetOutsideTheVocabulary) {
  const Matrix head = Matrix::trainable(at::randn({5, 3}), WeightFormat::f32, {});
  for (const int64_t id : {-1, 5}) {
    EXPECT_THROW(chunked_log_probs(at::ones({1, 3}), head, at::full({1}, id, at::kLong), {}), base::Error);
  }
}

}  // namespace
}  // namespace kernels
