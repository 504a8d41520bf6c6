// Numbers that the specification states (sections 1, 3.5, 4.4, appendix B).
#include <gtest/gtest.h>

#include "fixture.h"
#include "kernels/experts.h"
#include "kernels/hyper_connection.h"
#include "kernels/rope.h"
#include "kernels/router.h"

namespace test {
namespace {

const model::Config& flash() {
  static const model::Config kConfig =
      model::Config::from_json(base::read_json(model_golden("flash_config.json")), "flash");
  return kConfig;
}

Tensor matrix(std::vector<double> values, int64_t rows) { return at::tensor(values, at::kDouble).view({rows, -1}); }

// Spec 3.5, printed with 8 decimals.
constexpr double kPrinted = 6e-9;
Tensor sinkhorn_logits() {
  return matrix({0.3, -1.2, 0.7, 2.0, 1.5, 0.1, -0.4, 0.0, -2.0, 0.9, 0.25, -0.75, 0.0, 1.0, -1.0, 0.5}, 4)
      .unsqueeze(0);
}

TEST(Golden, SinkhornOfOneAndOfTwentyIterations) {
  const Tensor one = matrix({.12920470, .02235744, .28744418, .55598197, .65339373, .12495046, .14573976, .11460944,
                             .03290814, .46378555, .46559903, .09029136, .18449237, .38890573, .10121545, .23911639},
                            4);
  const Tensor twenty = matrix({.13173441, .02235805, .29541390, .55049264, .63181584, .11850709, .14205289, .10762318,
                                .03149697, .43538501, .44919394, .08392308, .20495178, .42374886, .11333827, .25796009},
                               4);
  EXPECT_LE(max_abs(kernels::sinkhorn(sinkhorn_logits(), 1, 1e-6)[0], one), kPrinted);
  EXPECT_LE(max_abs(kernels::sinkhorn(sinkhorn_logits(), 20, 1e-6)[0], twenty), kPrinted);
}

TEST(Golden, SinkhornBackward) {
  const Tensor logits = sinkhorn_logits().requires_grad_();
  const Tensor weight = matrix({1, 0, 0, 0, 0, 2, 0, 0, 0, 0, -1, 0, .5, 0, 0, 0}, 4);
  const Tensor loss = (kernels::sinkhorn(logits, 20, 1e-6)[0] * weight).sum();
  EXPECT_NEAR(loss.item<double>(), 0.02203053, kPrinted);
  loss.backward();
  const Tensor wanted = matrix({.0815351, -.0158012, .0183876, -.0841215, -.1806693, .1645278, .0223518, -.0062103,
                                .0117390, .0204695, -.0826428, .0504343, .0873947, -.1691953, .0419029, .0398976},
                               4);
  EXPECT_LE(max_abs(logits.grad()[0], wanted), 6e-8);  // printed with 7 decimals
}

TEST(Golden, YarnFrequenciesOfCompressedLayers) {
  const std::vector<double> wanted = {
      1,           .68765602,    .4728708,     .32517246,    .2236068,     .15376456,    .10573713,    .072710772,
      .05,         .034382801,   .02364354,    .016258623,   .01118034,    .0076882281,  .0052868563,  .0036355386,
      .002265625,  .0013968013,  8.4968973e-4, 5.0808196e-4, 2.9697778e-4, 1.6817999e-4, 9.0867843e-5, 4.5444232e-5,
      1.953125e-5, 5.3723127e-6, 3.6943032e-6, 2.5404098e-6, 1.7469281e-6, 1.2012856e-6, 8.260713e-7,  5.680529e-7};
  const std::vector<double> got = model::rope_frequencies(flash(), true);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(got[i] / wanted[i], 1, 1e-7) << i;  // 7 digits and more are printed
}

TEST(Golden, WindowLayersHaveTheirOwnBaseAndNoYarn) {
  const std::vector<double> got = model::rope_frequencies(flash(), false);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i] / std::pow(10000., -2. * static_cast<double>(i) / 64), 1, 1e-14);
}

TEST(Golden, ARopePairTurnsByItsPositionAndBack) {
  const kernels::RopeTable table = model::RopeTables::make(flash(), 8, at::kCPU).window;
  kernels::Layout at_7;
  at_7.num_tokens = 1;
  at_7.position_T = {7};
  const auto rotate = [&](const Tensor& values, bool inverse) {
    return kernels::rotate(values, at_7, table, inverse, kernels::Rounding::none);
  };
  const Tensor values = at::zeros({1, 512});
  values[0][448] = 1;  // the first of the last 64 dims: frequency 1
  const Tensor turned = rotate(values, false);
  EXPECT_NEAR(turned[0][448].item<double>(), .7539023, 1e-7);
  EXPECT_NEAR(turned[0][449].item<double>(), .6569866, 1e-7);
  EXPECT_LE(max_abs(rotate(turned, true), values), 1e-7);
  const Tensor plain = at::randn({1, 512});
  EXPECT_TRUE(at::equal(rotate(plain, false).narrow(1, 0, 448), plain.narrow(1, 0, 448)));
}

// The published router, on four experts.
struct Router {
  kernels::RouterOptions options{kernels::Scoring::sqrtsoftplus, 2, true, 1.5};
  Tensor bias = at::zeros({4});

  kernels::Routing operator()(std::vector<float> logits) const {
    const Tensor logits_TE = at::tensor(logits).unsqueeze(0);
    const Tensor expert_TA = kernels::best_experts(logits_TE, bias, options);
    return {expert_TA, kernels::expert_weights(logits_TE, expert_TA, options)};
  }
};

Tensor experts(std::vector<int32_t> ids) { return at::tensor(ids, at::kInt).unsqueeze(0); }

TEST(Golden, RouterWeightsOfTheTwoBestExperts) {
  const kernels::Routing routing = Router()({2, -1, .5, 3});
  EXPECT_TRUE(at::equal(routing.expert_TA, experts({0, 3})));
  EXPECT_NEAR(routing.weight_TA[0][0].item<double>(), .6826817, 2e-7);
  EXPECT_NEAR(routing.weight_TA[0][1].item<double>(), .8173183, 2e-7);
}

TEST(Golden, RouterScoresBeforeNormalising) {
  Router router;
  router.options = {kernels::Scoring::sqrtsoftplus, 4, false, 1};
  EXPECT_LE(max_abs(router({2, -1, .5, 3}).weight_TA, matrix({1.4583991, .5596979, .9869534, 1.7460204}, 1)), 2e-7);
}

TEST(Router, TheBiasChoosesButDoesNotWeigh) {
  Router router;
  router.bias = at::tensor({0.f, 5.f, 0.f, 0.f});
  const kernels::Routing routing = router({2, -1, .5, 3});
  EXPECT_TRUE(at::equal(routing.expert_TA, experts({1, 3})));
  const double sum = .5596979 + 1.7460204;
  EXPECT_NEAR(routing.weight_TA[0][0].item<double>(), 1.5 * .5596979 / sum, 2e-7);
}

TEST(Router, EqualScoresGoToTheLowerExpert) {
  EXPECT_TRUE(at::equal(Router()({1, 1, 1, 1}).expert_TA, experts({0, 1})));
}

TEST(Router, HashLayersTakeTheTablesExperts) {
  const Tensor table = at::tensor({3, 2, 2, 1}, at::kLong).view({2, 2});
  EXPECT_TRUE(at::equal(kernels::hashed_experts(table, at::ones({1}, at::kLong)), experts({1, 2})));
}

TEST(Router, ExtremeLogitsKeepWeightsAndGradientsFinite) {
  const kernels::RouterOptions options{kernels::Scoring::sqrtsoftplus, 4, true, 1.5};
  const Tensor logits = at::tensor({-200.f, 400.f, -80.f, -31.f}).unsqueeze(0).requires_grad_();
  const Tensor weight_TA = kernels::expert_weights(logits, experts({0, 1, 2, 3}), options);
  EXPECT_GT(weight_TA[0][0].item<float>(), 0);  // exp(-100), not an underflow of exp(-200)
  EXPECT_NEAR(weight_TA[0][3].item<double>() / 1.5 / (std::exp(-15.5) / 20), 1, 1e-6);
  weight_TA.square().sum().backward();
  EXPECT_TRUE(at::isfinite(logits.grad()).all().item<bool>());
}

// An expert of width 1: silu(gate) * up with the clamps of spec 5.2.
double swiglu(double gate, double up, bool shared, double limit = 10) {
  const auto value = [](double x, std::vector<int64_t> shape) {
    return kernels::Matrix::trainable(at::full(shape, static_cast<float>(x)), kernels::cpu::WeightFormat::f32,
                                      std::nullopt);
  };
  const std::vector<int64_t> shape = shared ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{1, 1, 1};
  const kernels::Matrix w1 = value(gate, shape), w2 = value(1, shape), w3 = value(up, shape);
  const Tensor x = at::ones({1, 1});
  const kernels::ExpertOptions options{limit, kernels::Rounding::none, false};
  if (shared) return kernels::shared_expert(x, {w1, w2, w3}, options).item<double>();
  return kernels::routed_experts(x, experts({0}), at::ones({1, 1}), at::zeros({1, 1}), {w1, w2, w3}, options)
      .item<double>();
}

TEST(Golden, SwigluClampsTheGateAboveAndTheUpProjectionOnBothSides) {
  for (const bool shared : {false, true}) {
    EXPECT_NEAR(swiglu(12, -15, shared), -99.99546, 1e-4);
    EXPECT_NEAR(swiglu(12, 15, shared), 99.99546, 1e-4);
    EXPECT_NEAR(swiglu(-50, 10, shared), 0, 1e-18);  // a gate clamped at -10 would give -4.5e-3
  }
  EXPECT_NEAR(swiglu(12, -15, true, /*limit=*/0), -12 * 15, 1e-2);
}

TEST(Golden, TheFlashScheduleAndItsDerivedSizes) {
  const model::Config& c = flash();
  int64_t csa = 0, hca = 0;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const int64_t wanted = l < 2 ? 0 : l % 2 == 0 ? 4 : 128;
    EXPECT_EQ(c.compress_ratio(l), wanted) << l;
    EXPECT_EQ(c.hash_layers[static_cast<size_t>(l)], l < 3);
    csa += wanted == 4;
    hca += wanted == 128;
  }
  EXPECT_EQ(csa, 21);
  EXPECT_EQ(hca, 20);
  EXPECT_EQ(c.compress_ratio(c.num_hidden_layers), 0);  // MTP
  EXPECT_EQ(c.block_alignment(), 128);
  EXPECT_EQ(c.num_attention_heads * c.head_dim, 32768);
  EXPECT_EQ(c.num_attention_heads * c.head_dim / c.o_groups, 4096);
  EXPECT_EQ(c.o_groups * c.o_lora_rank, 8192);
  EXPECT_EQ(c.hc_mult * c.hidden_size, 16384);
  EXPECT_EQ(c.index_n_heads * c.index_head_dim, 8192);
}

// Spec 1.4 in units of 1e9, as printed there; by parts of the names.
TEST(Golden, TheFlashParameterCounts) {
  std::map<std::string, double> count;
  const model::Weights described = model::Weights::describe(flash());
  described.visit([&](const model::TensorInfo& info, const Tensor&) {
    if (info.stored_as == model::StoredAs::i64) return;
    double size = info.stack > 0 ? static_cast<double>(info.stack) : 1;
    for (const int64_t dim : info.shape) size *= static_cast<double>(dim) * 1;
    size *= 1e-9;
    const auto has = [&](const char* part) { return info.name.find(part) != std::string::npos; };
    if (info.name.rfind("mtp.", 0) == 0) {
      count["mtp"] += size;
      return;
    }
    count["main"] += size;
    if (has(".experts.")) count["routed experts"] += size;
    if (has("shared_experts")) count["shared"] += size;
    if (has("indexer")) count["indexers"] += size;
    if (has("attn.compressor")) count["compressors"] += size;
    if (has("hc_")) count["mHC"] += size;
    if (has(".gate.weight")) count["gates"] += size;
    if (has(".attn.w")) count["attention linears"] += size;
    if (info.name == "embed.weight") count["embed"] += size;
  });
  EXPECT_NEAR(count["main"], 284.33, 0.005);
  EXPECT_NEAR(count["mtp"], 6.61, 0.005);
  EXPECT_NEAR(count["routed experts"], 277.025, 5e-4);
  EXPECT_NEAR(count["shared"], 1.082, 5e-4);
  EXPECT_NEAR(count["indexers"], .2257, 5e-5);
  EXPECT_NEAR(count["compressors"], .2615, 5e-5);
  EXPECT_NEAR(count["mHC"], .0339, 5e-5);
  EXPECT_NEAR(count["gates"], .0451, 5e-5);
  EXPECT_NEAR(count["attention linears"], 4.599, 5e-4);
  EXPECT_NEAR(count["embed"], .5295, 5e-5);
}

}  // namespace
}  // namespace test
