// Hyper-connections: golden values of the spec, kernels against definitions in f64, gradients, independence of tokens.
#include "kernels/hyper_connection.h"

#include "kernels/op_checks.h"
#include "kernels/reference/hyper_connection.h"
#include "kernels/simulate.h"
#include "tensor/golden.h"

namespace {

using kernels::HcInput;
using kernels::HcOptions;
using kernels::Matrix;
using kernels::Rounding;
using test::kUnit;
using test::normal;
using test::Tensor;
using test::Tensors;

constexpr double kEps = 1e-6;
constexpr int64_t kStreams[] = {1, 2, 3, 4, 5, 8};

// Spec 3.5, printed with 8 and 7 digits.
constexpr double kPrinted = 1e-7;
Tensor spec_logits() {
  return at::tensor({0.3, -1.2, 0.7, 2.0, 1.5, 0.1, -0.4, 0.0, -2.0, 0.9, 0.25, -0.75, 0.0, 1.0, -1.0, 0.5},
                    at::kDouble)
      .view({1, 4, 4});
}
const std::vector<double> kOneStep = {.12920470, .02235744, .28744418, .55598197, .65339373, .12495046,
                                      .14573976, .11460944, .03290814, .46378555, .46559903, .09029136,
                                      .18449237, .38890573, .10121545, .23911639};
const std::vector<double> kTwentySteps = {.13173441, .02235805, .29541390, .55049264, .63181584, .11850709,
                                          .14205289, .10762318, .03149697, .43538501, .44919394, .08392308,
                                          .20495178, .42374886, .11333827, .25796009};
const std::vector<double> kLogitGradient = {.0815351, -.0158012, .0183876, -.0841215, -.1806693, .1645278,
                                            .0223518, -.0062103, .0117390, .0204695,  -.0826428, .0504343,
                                            .0873947, -.1691953, .0419029, .0398976};

Tensor golden(const std::vector<double>& values) { return at::tensor(values, at::kDouble).view({1, 4, 4}); }

// Each of 39 steps leaves a few roundings of values below 1.
TEST(Sinkhorn, GoldenValuesOfTheSpec) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {  // the kernel, the definition
    const Tensor logits = spec_logits().to(dtype);
    const double bound = kPrinted + (dtype == at::kFloat ? 39 * 4 * kUnit : 0);
    EXPECT_LE(test::worst(kernels::sinkhorn(logits, 1, kEps), golden(kOneStep), bound), 1);
    EXPECT_LE(test::worst(kernels::sinkhorn(logits, 20, kEps), golden(kTwentySteps), bound), 1);
  }
}

TEST(Sinkhorn, GoldenGradientOfTheSpec) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const Tensor logits = spec_logits().to(dtype).requires_grad_();
    const Tensor weights =
        at::tensor({1.0, 0., 0., 0., 0., 2., 0., 0., 0., 0., -1., 0., .5, 0., 0., 0.}, at::kDouble).view({1, 4, 4});
    const Tensor loss = (kernels::sinkhorn(logits, 20, kEps) * weights).sum();
    EXPECT_NEAR(loss.item<double>(), 0.02203053, kPrinted + 40 * kUnit);
    loss.backward();
    EXPECT_LE(test::worst(logits.grad(), golden(kLogitGradient), kPrinted + (dtype == at::kFloat ? 1e-6 : 0)), 1);
  }
}

TEST(Sinkhorn, KernelAgreesWithTheDefinitionForEveryNumberOfStreams) {
  for (const int64_t m : kStreams) {
    for (const int64_t iters : {1, 2, 20}) {
      const auto run = [&](const Tensors& in) { return Tensors{kernels::sinkhorn(in[0], iters, kEps)}; };
      for (const int64_t tokens : {0, 1, 7, 8, 21}) {
        const Tensor logits = normal({tokens, m, m}, 1) * 2;
        EXPECT_LE(test::worst(run({logits})[0], run({logits.to(at::kDouble)})[0], 39 * 4 * kUnit), 1) << m;
        if (tokens == 0) continue;
        const auto fast = test::gradients(run, {logits}, at::kFloat),
                   wanted = test::gradients(run, {logits}, at::kDouble);
        EXPECT_LE(test::worst(fast[0], wanted[0], 39 * 40 * kUnit), 1) << m << " streams, " << iters << " iterations";
      }
    }
  }
}

TEST(Sinkhorn, ExtremeLogitsStayFinite) {
  const Tensor logits = at::tensor({-3e38f, 100.0f, 3e38f, -90.0f}).view({1, 2, 2});
  const Tensor comb = kernels::sinkhorn(logits, 20, kEps);
  EXPECT_TRUE(comb.isfinite().all().item<bool>());
  EXPECT_LE(test::worst(comb, kernels::reference::sinkhorn(logits, 20, kEps), 39 * 4 * kUnit), 1);
}

TEST(Sinkhorn, ANotANumberIsNotHidden) {
  const Tensor logits = at::zeros({2, 4, 4});
  logits[1][2][3] = NAN;
  const Tensor comb = kernels::sinkhorn(logits, 20, kEps);
  EXPECT_TRUE(comb[0].isfinite().all().item<bool>());
  EXPECT_TRUE(comb[1].isnan().all().item<bool>());
}

// The inputs of one site: streams, fn, base, scale.
Tensors site(int64_t tokens, int64_t m, int64_t d, bool head, uint64_t seed) {
  const int64_t rows = head ? m : (2 + m) * m, width = m * d;
  const double size = 1 / std::sqrt(static_cast<double>(width));  // so that mixes are about 1
  return {normal({tokens, m, d}, seed) * 2, normal({rows, width}, seed + 1) * size, normal({rows}, seed + 2),
          normal({head ? 1 : 3}, seed + 3)};
}

HcOptions options_of(Rounding rounding) { return {20, kEps, kEps, rounding}; }

// fn as a trainable matrix around the leaf that the checks hand in.
Matrix matrix_of(const Tensor& fn) {
  Matrix matrix = Matrix::trainable(fn.detach().clone(), kernels::cpu::WeightFormat::f32, std::nullopt);
  return matrix;
}

Tensors run_pre(const Tensors& in, bool head, Rounding rounding) {
  const HcOptions options = options_of(rounding);
  if (in[0].scalar_type() == at::kDouble) {
    const kernels::reference::HcValues values{in[1], in[2], in[3]};
    if (head) return {kernels::reference::hc_head(in[0], values, options)};
    const HcInput out = kernels::reference::hc_pre(in[0], values, options);
    return {out.input_TD, out.post_TM, out.comb_TMM};
  }
  Matrix fn = matrix_of(in[1]);
  fn.leaf() = in[1];
  const kernels::HcWeights weights{fn, in[2], in[3]};
  if (head) return {kernels::hc_head(in[0], weights, options)};
  const HcInput out = kernels::hc_pre(in[0], weights, options);
  return {out.input_TD, out.post_TM, out.comb_TMM};
}

test::Function pre(bool head) {
  return [head](const Tensors& in) { return run_pre(in, head, Rounding::none); };
}

// A mix is a chain of M * D products whose partial sums stay about 1: their roundings add up like a random walk, here
// taken 8 times wider. The logits scale it by about 1, gates and normalisations by less; streams are about 2.
double mix_bound(int64_t width) { return (8 * std::sqrt(static_cast<double>(width)) + 160) * kUnit; }

TEST(HcPre, KernelAgreesWithTheDefinitionInF64) {
  for (const int64_t m : kStreams) {
    for (const int64_t d : {1, 7, 16, 33, 128}) {
      for (const int64_t tokens : {1, 3, 8, 37}) {
        for (const bool head : {false, true}) {
          const Tensors in = site(tokens, m, d, head, 10);
          Tensors exact;
          for (const Tensor& input : in) exact.push_back(input.to(at::kDouble));
          const Tensors fast = run_pre(in, head, Rounding::none), wanted = run_pre(exact, head, Rounding::none);
          for (size_t i = 0; i < fast.size(); ++i) {
            EXPECT_EQ(fast[i].sizes(), wanted[i].sizes());
            const double size = i == 0 ? 4.0 * static_cast<double>(m) : 1.0;
            EXPECT_LE(test::worst(fast[i], wanted[i], size * mix_bound(m * d)), 1)
                << tokens << " tokens of " << m << " streams of " << d << ", result " << i;
          }
        }
      }
    }
  }
}

TEST(HcPre, RoundsOnlyTheInputOfTheLayer) {
  for (const int64_t m : {3, 4}) {
    const Tensors in = site(20, m, 40, false, 20);
    const Tensors plain = run_pre(in, false, Rounding::none), rounded = run_pre(in, false, Rounding::bf16);
    EXPECT_TRUE(test::same_bits(rounded[0], kernels::round_bf16(plain[0])));
    EXPECT_TRUE(test::same_bits(rounded[1], plain[1]));
    EXPECT_TRUE(test::same_bits(rounded[2], plain[2]));
  }
}

TEST(HcPre, CombHasColumnsThatSumToOne) {
  const Tensor comb = run_pre(site(30, 4, 64, false, 30), false, Rounding::none)[2];
  EXPECT_LE(test::worst(comb.sum(1), at::ones({30, 4}), 2e-6), 1);  // the sum has eps added
  EXPECT_LE((comb.sum(2) - 1).abs().mean().item<float>(), 1e-2);
}

TEST(HcPre, ATokenDependsNeitherOnOtherTokensNorOnThreads) {
  for (const int64_t m : {3, 4}) {
    const Tensors in = site(150, m, 96, false, 40);
    const Tensors all = run_pre(in, false, Rounding::bf16);
    test::for_thread_counts([&] {
      const Tensors again = run_pre(in, false, Rounding::bf16);
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(test::same_bits(again[i], all[i]));
    });
    for (const int64_t t : {0, 13, 149}) {
      const Tensors alone = run_pre({in[0][t].unsqueeze(0), in[1], in[2], in[3]}, false, Rounding::bf16);
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(test::same_bits(alone[i][0], all[i][t]));
    }
  }
}

TEST(HcPre, WithGradientsTheValuesAreTheSame) {
  Tensors in = site(19, 4, 32, false, 50);
  const Tensors plain = run_pre(in, false, Rounding::bf16);
  for (Tensor& input : in) input.requires_grad_();
  const Tensors learning = run_pre(in, false, Rounding::bf16);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(test::same_bits(learning[i].detach(), plain[i]));
}

TEST(HcPre, GradientsOfTheDefinitionsMatchDifferences) {
  for (const bool head : {false, true}) {
    test::expect_gradients_match_differences(pre(head), site(3, 4, 5, head, 60));
  }
}

// Gradients of weights are sums over tokens; each is compared with the largest of its kind.
TEST(HcPre, KernelGradientsAgreeWithTheDefinitionInF64) {
  for (const int64_t m : kStreams) {
    for (const int64_t d : {5, 40}) {
      for (const int64_t tokens : {1, 16, 37}) {
        for (const bool head : {false, true}) {
          const Tensors in = site(tokens, m, d, head, 70);
          const Tensors fast = test::gradients(pre(head), in, at::kFloat);
          const Tensors wanted = test::gradients(pre(head), in, at::kDouble);
          for (size_t i = 0; i < in.size(); ++i) {
            const double size = 1 + wanted[i].abs().max().item<double>();
            EXPECT_LE(test::worst(fast[i], wanted[i], 4 * size * mix_bound(m * d)), 1)
                << tokens << " tokens of " << m << " streams of " << d << (head ? ", head" : "") << ", input " << i;
          }
        }
      }
    }
  }
}

TEST(HcPre, GradientsHaveTheSameBitsOnAnyNumberOfThreads) {
  const Tensors in = site(200, 4, 64, false, 80);
  const Tensors wanted = test::gradients(pre(false), in, at::kFloat);
  test::for_thread_counts([&] {
    const Tensors again = test::gradients(pre(false), in, at::kFloat);
    for (size_t i = 0; i < in.size(); ++i) EXPECT_TRUE(test::same_bits(again[i], wanted[i])) << i;
  });
}

TEST(HcPre, GatesThatNothingReadsCountAsZero) {
  const Tensors in = site(9, 4, 16, false, 90);
  const auto only_input = [](const Tensors& inputs) { return Tensors{run_pre(inputs, false, Rounding::none)[0]}; };
  const Tensors fast = test::gradients(only_input, in, at::kFloat),
                wanted = test::gradients(only_input, in, at::kDouble);
  const auto only_comb = [](const Tensors& inputs) { return Tensors{run_pre(inputs, false, Rounding::none)[2]}; };
  const Tensors fast_comb = test::gradients(only_comb, in, at::kFloat);
  const Tensors wanted_comb = test::gradients(only_comb, in, at::kDouble);
  for (size_t i = 0; i < in.size(); ++i) {
    const double size = 1 + wanted[i].abs().max().item<double>();
    EXPECT_LE(test::worst(fast[i], wanted[i], 4 * size * mix_bound(64)), 1) << i;
    EXPECT_LE(test::worst(fast_comb[i], wanted_comb[i], 4 * mix_bound(64)), 1) << i;
  }
}

TEST(HcPre, StreamsAloneCanLearn) {
  Tensors in = site(5, 4, 8, false, 100);
  in[0].requires_grad_();
  test::weighted_sum(run_pre(in, false, Rounding::none)).backward();
  EXPECT_LE(test::worst(in[0].grad(), test::gradients(pre(false), in, at::kDouble)[0], 40 * mix_bound(32)), 1);
}

Tensors post_inputs(int64_t tokens, int64_t m, int64_t d, uint64_t seed) {
  return {normal({tokens, d}, seed), normal({tokens, m, d}, seed + 1), normal({tokens, m}, seed + 2),
          normal({tokens, m, m}, seed + 3)};
}

test::Function post() {
  return [](const Tensors& in) { return Tensors{kernels::hc_post(in[0], in[1], in[2], in[3], Rounding::none)}; };
}

TEST(HcPost, RowIOfCombIsTheSourceAndColumnJTheTarget) {  // spec 3.3: the most frequent error of ports
  const Tensor f = at::tensor({10.0f}).view({1, 1}), streams = at::tensor({1.0f, 2.0f}).view({1, 2, 1});
  const Tensor weights = at::tensor({0.5f, 0.25f}).view({1, 2});
  const Tensor comb = at::tensor({3.0f, 4.0f, 5.0f, 6.0f}).view({1, 2, 2});
  const Tensor out = kernels::hc_post(f, streams, weights, comb, Rounding::none);
  EXPECT_TRUE(at::equal(out.flatten(), at::tensor({5.0f + 3 + 10, 2.5f + 4 + 12})));
}

// A chain of M + 1 products.
TEST(HcPost, KernelAgreesWithTheDefinitionInF64) {
  for (const int64_t m : kStreams) {
    for (const int64_t d : {1, 7, 16, 33, 128}) {
      for (const int64_t tokens : {0, 1, 3, 40}) {
        const Tensors in = post_inputs(tokens, m, d, 1);
        Tensors exact, sizes;
        for (const Tensor& input : in) exact.push_back(input.to(at::kDouble)), sizes.push_back(input.abs());
        const Tensor bound = post()(sizes)[0] * static_cast<double>(m + 1) * kUnit;
        EXPECT_LE(test::worst(post()(in)[0], post()(exact)[0], bound), 1) << m << " streams of " << d;
        EXPECT_TRUE(test::same_bits(kernels::hc_post(in[0], in[1], in[2], in[3], Rounding::bf16),
                                    kernels::round_bf16(post()(in)[0])));
      }
    }
  }
}

TEST(HcPost, GradientsOfTheDefinitionMatchDifferences) {
  test::expect_gradients_match_differences(post(), post_inputs(3, 4, 5, 5));
}

// Sums of M or of D products of about 1.
TEST(HcPost, KernelGradientsAgreeWithTheDefinitionInF64) {
  for (const int64_t m : kStreams) {
    for (const int64_t d : {1, 16, 45}) {
      const Tensors in = post_inputs(21, m, d, 6);
      const Tensors fast = test::gradients(post(), in, at::kFloat), wanted = test::gradients(post(), in, at::kDouble);
      for (size_t i = 0; i < in.size(); ++i) {
        const double size = 1 + wanted[i].abs().max().item<double>();
        EXPECT_LE(test::worst(fast[i], wanted[i], size * (16 + static_cast<double>(d) / 16) * kUnit), 1)
            << m << " " << i;
      }
    }
  }
}

TEST(HcPost, HasTheSameBitsOnAnyNumberOfThreadsAndInAnyBatch) {
  const Tensors in = post_inputs(300, 4, 72, 7);
  const Tensor all = post()(in)[0];
  const Tensors slopes = test::gradients(post(), in, at::kFloat);
  test::for_thread_counts([&] {
    EXPECT_TRUE(test::same_bits(post()(in)[0], all));
    const Tensors again = test::gradients(post(), in, at::kFloat);
    for (size_t i = 0; i < in.size(); ++i) EXPECT_TRUE(test::same_bits(again[i], slopes[i]));
  });
  Tensors alone;
  for (const Tensor& input : in) alone.push_back(input[123].unsqueeze(0));
  EXPECT_TRUE(test::same_bits(post()(alone)[0][0], all[123]));
}

}  // namespace
