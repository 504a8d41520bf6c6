// Numbers that the specification states (sections 1, 3.5, 4.4, appendix B).
#include <gtest/gtest.h>

#include "fixture.h"
#include "model/hyper_connection.h"
#include "model/moe.h"
#include "model/rope.h"

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
  EXPECT_LE(max_abs(model::sinkhorn(sinkhorn_logits(), 1, 1e-6)[0], one), kPrinted);
  EXPECT_LE(max_abs(model::sinkhorn(sinkhorn_logits(), 20, 1e-6)[0], twenty), kPrinted);
}

TEST(Golden, SinkhornBackward) {
  const Tensor logits = sinkhorn_logits().requires_grad_();
  const Tensor weight = matrix({1, 0, 0, 0, 0, 2, 0, 0, 0, 0, -1, 0, .5, 0, 0, 0}, 4);
  const Tensor loss = (model::sinkhorn(logits, 20, 1e-6)[0] * weight).sum();
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
  const model::Rotation rotation = model::rotation(flash(), false, at::tensor({7.f}));
  const Tensor values = at::zeros({1, 512});
  values[0][448] = 1;  // the first of the last 64 dims: frequency 1
  const Tensor turned = model::rotate(values, rotation);
  EXPECT_NEAR(turned[0][448].item<double>(), .7539023, 1e-7);
  EXPECT_NEAR(turned[0][449].item<double>(), .6569866, 1e-7);
  EXPECT_LE(max_abs(model::rotate(turned, rotation, true), values), 1e-7);
  const Tensor plain = at::randn({1, 512});
  EXPECT_TRUE(at::equal(model::rotate(plain, rotation).narrow(1, 0, 448), plain.narrow(1, 0, 448)));
}

// A layer with `experts` experts whose gate passes the input through.
struct Router {
  explicit Router(const std::string& scoring = "sqrtsoftplus") {
    config.scoring_func = scoring;
    config.n_routed_experts = config.hidden_size = 4;
    config.num_experts_per_tok = 2;
    config.routed_scaling_factor = 1.5;
    weights.gate = at::eye(4);
    weights.bias = at::zeros({4});
  }
  model::Routing operator()(std::vector<float> logits) const {
    return model::route(config, weights, at::tensor(logits).unsqueeze(0), at::zeros({1}, at::kLong), nullptr, false);
  }
  model::Config config;
  model::MoeWeights weights;
};

TEST(Golden, RouterWeightsOfTheTwoBestExperts) {
  const model::Routing routing = Router()({2, -1, .5, 3});
  EXPECT_TRUE(at::equal(routing.expert_TA, at::tensor({0, 3}, at::kLong).unsqueeze(0)));
  EXPECT_NEAR(routing.weight_TA[0][0].item<double>(), .6826817, 1e-7);
  EXPECT_NEAR(routing.weight_TA[0][1].item<double>(), .8173183, 1e-7);
}

TEST(Golden, RouterScoresBeforeNormalising) {
  Router router;
  router.config.norm_topk_prob = false;
  router.config.num_experts_per_tok = 4;
  router.config.routed_scaling_factor = 1;
  EXPECT_LE(max_abs(router({2, -1, .5, 3}).weight_TA, matrix({1.4583991, .5596979, .9869534, 1.7460204}, 1)), 1e-7);
}

TEST(Router, TheBiasChoosesButDoesNotWeigh) {
  Router router;
  router.weights.bias = at::tensor({0.f, 5.f, 0.f, 0.f});
  const model::Routing routing = router({2, -1, .5, 3});
  EXPECT_TRUE(at::equal(routing.expert_TA, at::tensor({1, 3}, at::kLong).unsqueeze(0)));
  const double sum = .5596979 + 1.7460204;
  EXPECT_NEAR(routing.weight_TA[0][0].item<double>(), 1.5 * .5596979 / sum, 1e-7);
}

TEST(Router, EqualScoresGoToTheLowerExpert) {
  EXPECT_TRUE(at::equal(Router()({1, 1, 1, 1}).expert_TA, at::tensor({0, 1}, at::kLong).unsqueeze(0)));
}

TEST(Router, HashLayersTakeTheTablesExpertsAndTheGatesWeights) {
  Router router;
  router.weights.bias = Tensor();
  router.weights.tid2eid = at::tensor({3, 2, 2, 1}, at::kLong).view({2, 2});
  const Tensor input = at::tensor({2.f, -1.f, .5f, 3.f}).unsqueeze(0);
  const model::Routing routing =
      model::route(router.config, router.weights, input, at::ones({1}, at::kLong), nullptr, false);
  EXPECT_TRUE(at::equal(routing.expert_TA, at::tensor({1, 2}, at::kLong).unsqueeze(0)));
  EXPECT_NEAR(routing.weight_TA[0][1].item<double>(), 1.5 * .9869534 / (.9869534 + .5596979), 1e-7);
}

TEST(Router, ExtremeLogitsKeepWeightsAndGradientsFinite) {
  Router router;
  const Tensor input = at::tensor({-200.f, 400.f, -80.f, -31.f}).unsqueeze(0).requires_grad_();
  router.config.num_experts_per_tok = 4;
  const model::Routing routing =
      model::route(router.config, router.weights, input, at::zeros({1}, at::kLong), nullptr, false);
  EXPECT_GT(routing.weight_TA[0][0].item<float>(), 0);  // exp(-100), not an underflow of exp(-200)
  EXPECT_NEAR(routing.weight_TA[0][3].item<double>() / 1.5 / (std::exp(-15.5) / 20), 1, 1e-6);
  routing.weight_TA.square().sum().backward();
  EXPECT_TRUE(at::isfinite(input.grad()).all().item<bool>());
}

// One expert of width 1, and a shared expert that gives nothing: silu(gate) * up with the clamps of spec 5.2.
double swiglu(double gate, double up, bool shared, bool clamp_shared = true) {
  model::Config config;
  config.n_routed_experts = config.num_experts_per_tok = config.hidden_size = config.moe_intermediate_size = 1;
  config.routed_scaling_factor = 1;
  config.clamp_shared_expert = clamp_shared;
  const auto value = [](double x) { return at::full({1, 1}, x); };
  model::MoeWeights weights;
  weights.gate = value(1);
  weights.bias = at::zeros({1});
  weights.w1 = value(shared ? 0 : gate).unsqueeze(0);
  weights.w3 = value(up).unsqueeze(0);
  weights.w2 = value(1).unsqueeze(0);
  weights.shared_w1 = value(shared ? gate : 0);
  weights.shared_w3 = value(up);
  weights.shared_w2 = value(1);
  const model::Routing routing = model::route(config, weights, value(1), at::zeros({1}, at::kLong), nullptr, false);
  return model::moe(config, model::Profile(), weights, value(1), routing).item<double>();
}

TEST(Golden, SwigluClampsTheGateAboveAndTheUpProjectionOnBothSides) {
  for (const bool shared : {false, true}) {
    EXPECT_NEAR(swiglu(12, -15, shared), -99.99546, 1e-4);
    EXPECT_NEAR(swiglu(12, 15, shared), 99.99546, 1e-4);
    EXPECT_NEAR(swiglu(-50, 10, shared), 0, 1e-18);  // a gate clamped at -10 would give -4.5e-3
  }
  EXPECT_NEAR(swiglu(12, -15, true, /*clamp_shared=*/false), -12 * 15, 1e-2);
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
