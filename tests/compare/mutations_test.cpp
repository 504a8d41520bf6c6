// Things broken on purpose, as engines have been seen to break them; each must be named, and nothing else. The broken
// side still claims the right config and weights, or holds wrong ones: the diagnosis sees no more than it would see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "compare/models.h"
#include "kernels/hyper_connection.h"
#include "kernels/rms_norm.h"
#include "model/attention.h"
#include "model/moe.h"
#include "model/numerics.h"

namespace {

using compare::Comparison;
using compare::LayerRecord;
using model::Site;
using test::BrokenSide;
using test::compare_config;
using test::compare_weights;
using test::compared;
using test::expect_cause;
using test::Ids;
using test::plain_side;
using test::Profile;
using test::RunWeights;
using test::Tensor;
using test::Weights;
using testing::AllOf;
using testing::HasSubstr;

const std::string& line_of(const Comparison& comparison) { return comparison.walks.at(0).diagnosis->line; }
const compare::Parting& parting_of(const Comparison& comparison) { return *comparison.walks.at(0).walk.parting; }

class Mutation : public testing::TestWithParam<const char*> {
 protected:
  std::string profile() const { return GetParam(); }

  // The broken side on either hand.
  void expect_named(compare::Side& broken, const std::string& id) {
    compare::PlainSide whole = plain_side(compare_weights(), profile());
    expect_cause(compared(whole, broken), id, 1);
    expect_cause(compared(broken, whole), id, 0);
  }
};

// ---- The seven.

TEST_P(Mutation, AShuffledHashTable) {
  Weights shuffled = compare_weights().clone();
  Tensor& table = shuffled.layers[2].ffn.tid2eid;
  std::vector<int64_t> order(64);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i + 1 < 64; i += 3) std::swap(order[i], order[i + 1]);
  table = table.index_select(0, at::tensor(order, at::kLong));
  compare::PlainSide whole = plain_side(compare_weights(), profile()), broken = plain_side(shuffled, profile());
  const Comparison found = compared(whole, broken);
  expect_cause(found, "hash_table", -1);
  EXPECT_EQ(parting_of(found).layer, 2);
  EXPECT_EQ(parting_of(found).site, Site::router_choice);
  EXPECT_THAT(line_of(found),
              AllOf(HasSubstr("router choice differs in "), HasSubstr(" tokens at layer 2, hash-routed: "),
                    HasSubstr("the table differs (layers.2.ffn.gate.tid2eid: "),
                    HasSubstr("the same rows in another order (shuffled)")));
  // The oracle for the count: tokens whose rows name other experts.
  const Ids& ids = found.walks[0].walk.ids;
  const Tensor rows = test::ids_tensor(ids);
  const auto chosen = [&](const Tensor& t) { return std::get<0>(t.index_select(0, rows).sort(1)); };
  const int64_t want =
      at::ne(chosen(table), chosen(compare_weights().layers[2].ffn.tid2eid)).any(1).sum().item<int64_t>();
  EXPECT_EQ(parting_of(found).difference.differing, want);
}

// A block whose streams are mixed by comb^T; everything else as model/transformer.cpp has it.
LayerRecord transposed_layer(const RunWeights& weights, const Profile& profile, const Ids& ids, int64_t layer,
                             const Tensor& streams) {
  const at::NoGradGuard no_grad;
  const test::Ingredients with = test::right_ingredients(weights, profile, ids);
  LayerRecord record{layer, streams, {}};
  const model::Probe probe = [&](int64_t, Site site, const Tensor& value) { record.sites[site] = value.clone(); };
  const model::Pass pass{.weights = weights,
                         .profile = profile,
                         .layout = with.layout,
                         .rope = with.rope,
                         .ids_T = test::ids_tensor(ids),
                         .probe = &probe};
  const model::Config& c = weights.config;
  const auto& block = weights.layers[static_cast<size_t>(layer)];
  const model::BlockCall call{pass, layer, c.layer_types[static_cast<size_t>(layer)]};
  const kernels::HcOptions options{c.hc_sinkhorn_iters, c.hc_eps, c.rms_norm_eps, model::rounding(profile)};
  const auto norm = [&](const Tensor& x, const Tensor& w) {
    return kernels::rms_norm(x, w, c.rms_norm_eps, options.rounding);
  };
  const auto mix = [&](const Tensor& output, const Tensor& in, const kernels::HcInput& hc) {
    return kernels::hc_post(output, in, hc.post_TM, hc.comb_TMM.transpose(1, 2).contiguous(), options.rounding);
  };
  const auto attn = kernels::hc_pre(streams, {block.hc_attn.fn, block.hc_attn.base, block.hc_attn.scale}, options);
  call.see(Site::attn_hc_pre, attn.input_TD);
  const Tensor attn_out = model::attention(call, block.attn, norm(attn.input_TD, block.attn_norm));
  call.see(Site::attn_output, attn_out);
  const Tensor mid = mix(attn_out, streams, attn);
  call.see(Site::attn_hc_post, mid);
  const auto ffn = kernels::hc_pre(mid, {block.hc_ffn.fn, block.hc_ffn.base, block.hc_ffn.scale}, options);
  call.see(Site::ffn_hc_pre, ffn.input_TD);
  const Tensor ffn_out = model::moe(call, block.ffn, norm(ffn.input_TD, block.ffn_norm), pass.ids_T);
  call.see(Site::ffn_hc_post, mix(ffn_out, mid, ffn));
  return record;
}

TEST_P(Mutation, CombTransposed) {
  BrokenSide broken(compare_weights(), profile(), transposed_layer);
  expect_named(broken, "comb_transposed");
  compare::PlainSide whole = plain_side(compare_weights(), profile());
  const Comparison found = compared(whole, broken);
  EXPECT_THAT(line_of(found), AllOf(HasSubstr("hc_post ("), HasSubstr("B mixes the streams by the transpose of comb")));
}

TEST_P(Mutation, SharedExpertClampOff) {
  BrokenSide broken(
      compare_weights(), profile(),
      [](const RunWeights& weights, const Profile& profile, const Ids& ids, int64_t layer, const Tensor& x) {
        RunWeights unclamped = weights;
        unclamped.config.clamp_shared_expert = false;
        return test::layer_of(test::right_ingredients(unclamped, profile, ids), ids, layer, x);
      });
  expect_named(broken, "shared_clamp");
  compare::PlainSide whole = plain_side(compare_weights(), profile());
  const Comparison found = compared(whole, broken);
  EXPECT_EQ(parting_of(found).site, Site::shared_output);
  EXPECT_THAT(line_of(found), HasSubstr("B does not clamp the shared expert (swiglu_limit 0.5)"));
}

TEST_P(Mutation, SharedExpertClampOffByTheConfig) {
  Weights other = compare_weights().clone();
  other.config.clamp_shared_expert = false;
  compare::PlainSide whole = plain_side(compare_weights(), profile()), broken = plain_side(other, profile());
  const Comparison found = compared(whole, broken);
  expect_cause(found, "shared_clamp", -1);
  EXPECT_THAT(line_of(found), HasSubstr("the shared expert is clamped on A only"));
}

// Codes and scales of the published layout, the scales' bytes copied as if they were numbers.
Weights with_bytes_as_numbers(const Weights& published) {
  Weights wrong = published.clone();
  wrong.visit([&](const model::TensorInfo& info, Tensor& value) {
    if (!info.is_quantised()) return;
    const auto format =
        info.stored_as == model::StoredAs::e2m1_1x32 ? tensor::BlockFormat::e2m1 : tensor::BlockFormat::e4m3;
    const tensor::Quantised stored = tensor::quantise_blocks(value, format);
    value = tensor::dequantise_blocks({stored.codes, stored.scales.to(at::kFloat), format});
  });
  return wrong;
}

// What a loader that reads them right gives.
Weights as_published(const Weights& masters) {
  Weights published = masters.clone();
  published.visit([&](const model::TensorInfo& info, Tensor& value) {
    if (info.stored_as == model::StoredAs::i64) return;
    value = model::published_value(info, value).to(at::kFloat);
    if (!info.is_quantised()) return;
    const auto format =
        info.stored_as == model::StoredAs::e2m1_1x32 ? tensor::BlockFormat::e2m1 : tensor::BlockFormat::e4m3;
    value = tensor::dequantise_blocks(tensor::quantise_blocks(value, format));
  });
  return published;
}

TEST_P(Mutation, E8m0ReadAsANumber) {
  const Weights published = as_published(compare_weights());
  compare::PlainSide whole = plain_side(published, profile()),
                     broken = plain_side(with_bytes_as_numbers(published), profile());
  const Comparison found = compared(whole, broken);
  expect_cause(found, "e8m0_as_number", 1);
  EXPECT_THAT(line_of(found), AllOf(HasSubstr("B read e8m0 scales as numbers (layers.0.attn.wq_a.weight: "),
                                    HasSubstr("over 2^(e - 127)")));
  expect_cause(compared(broken, whole), "e8m0_as_number", 0);
}

TEST_P(Mutation, YarnOnWindowLayers) {
  for (const bool own_base : {true, false}) {
    BrokenSide broken(
        compare_weights(), profile(),
        [own_base](const RunWeights& weights, const Profile& profile, const Ids& ids, int64_t layer, const Tensor& x) {
          test::Ingredients with = test::right_ingredients(weights, profile, ids);
          if (own_base) {
            model::Config config = weights.config;
            config.compress_rope_theta = 10000;
            with.rope.window = model::RopeTables::make(config, static_cast<int64_t>(ids.size()), at::kCPU).compress;
          } else {
            with.rope.window = with.rope.compress;
          }
          return test::layer_of(with, ids, layer, x);
        });
    expect_named(broken, "yarn_on_window_layers");
    compare::PlainSide whole = plain_side(compare_weights(), profile());
    const Comparison found = compared(whole, broken);
    EXPECT_EQ(parting_of(found).layer, 0);
    EXPECT_EQ(parting_of(found).site, Site::query);
    EXPECT_GE(parting_of(found).difference.first, 1) << "position 0 is not turned";
    EXPECT_THAT(line_of(found), AllOf(HasSubstr("B uses YaRN"), HasSubstr("on a window layer")));
  }
}

TEST_P(Mutation, WindowWrongByOne) {
  for (const int64_t step : {-1, 1}) {
    BrokenSide broken(
        compare_weights(), profile(),
        [step](const RunWeights& weights, const Profile& profile, const Ids& ids, int64_t layer, const Tensor& x) {
          test::Ingredients with = test::right_ingredients(weights, profile, ids);
          with.layout.window += step;
          return test::layer_of(with, ids, layer, x);
        });
    expect_named(broken, "window");
    compare::PlainSide whole = plain_side(compare_weights(), profile());
    const Comparison found = compared(whole, broken);
    EXPECT_EQ(parting_of(found).layer, 0);
    EXPECT_EQ(parting_of(found).site, Site::attention);
    // The first token for which the narrower of the two windows is full.
    EXPECT_EQ(parting_of(found).difference.first, compare_config().sliding_window + std::min<int64_t>(step, 0));
    EXPECT_THAT(line_of(found), HasSubstr(fmt::format("B attends to a window of {} tokens", 8 + step)));
  }
}

TEST_P(Mutation, WindowWrongByOneByTheConfig) {
  Weights other = compare_weights().clone();
  other.config.sliding_window = 7;
  compare::PlainSide whole = plain_side(compare_weights(), profile()), broken = plain_side(other, profile());
  const Comparison found = compared(whole, broken);
  expect_cause(found, "window", -1);
  EXPECT_THAT(line_of(found), HasSubstr("sliding_window is 8 on A and 7 on B"));
}

INSTANTIATE_TEST_SUITE_P(Profiles, Mutation, testing::Values("f32", "bf16", "fp8", "fp8_fp4"),
                         [](const auto& parameter) { return std::string(parameter.param); });

// Weights after an update: new codes, and in some blocks the scales of the version before.
class StaleScale : public testing::TestWithParam<const char*> {};

TEST_P(StaleScale, OfALinearLayerAndOfAnExpert) {
  const Profile profile = Profile::parse(GetParam());
  const bool fp4 = profile.fp4_experts;
  for (const bool expert : {false, true}) {
    RunWeights stale = RunWeights::frozen(compare_weights(), profile);
    const auto& masters = compare_weights().layers[1];
    const auto format = expert && fp4 ? tensor::BlockFormat::e2m1 : tensor::BlockFormat::e4m3;
    const Tensor now = (expert ? masters.ffn.w2[1] : masters.attn.wo_b).to(at::kBFloat16);
    Tensor before = now.clone();
    before.narrow(0, 128, 32).mul_(3);  // rows whose magnitude the update changed
    const tensor::Quantised fresh = tensor::quantise_blocks(now, format), old = tensor::quantise_blocks(before, format);
    auto& matrix = expert ? stale.layers[1].ffn.w2 : stale.layers[1].attn.wo_b;
    matrix.set(expert ? 1 : 0, {fresh.codes, old.scales, format});
    compare::PlainSide whole = plain_side(compare_weights(), GetParam());
    compare::PlainSide broken("broken", std::move(stale), profile, {});
    const Comparison found = compared(whole, broken);
    expect_cause(found, "stale_scales", -1);
    EXPECT_EQ(parting_of(found).layer, 1);
    EXPECT_EQ(parting_of(found).site, expert ? Site::expert_output : Site::attn_output);
    EXPECT_THAT(line_of(found),
                AllOf(HasSubstr(expert ? "layers.1.ffn.experts.{}.w2.weight" : "layers.1.attn.wo_b.weight"),
                      HasSubstr("the codes are equal"), HasSubstr("stale")));
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, StaleScale, testing::Values("fp8", "fp8_fp4"),
                         [](const auto& parameter) { return std::string(parameter.param); });

// ---- Smaller ones.

struct Spoilt {
  const char* id;
  std::function<void(RunWeights&, Profile&)> spoil;
};

TEST(SmallerMutations, EachIsNamed) {
  const Spoilt all[] = {
      {"attn_sink",
       [](RunWeights& w, Profile&) {
         for (auto& layer : w.layers) layer.attn.attn_sink = at::full_like(layer.attn.attn_sink, -1e30);
       }},
      {"router_bias",
       [](RunWeights& w, Profile&) {
         for (auto& layer : w.layers) layer.ffn.bias = layer.ffn.bias.defined() ? at::zeros({4}) : Tensor();
       }},
      {"router_weights", [](RunWeights& w, Profile&) { w.config.norm_topk_prob = false; }},
      {"router_weights", [](RunWeights& w, Profile&) { w.config.routed_scaling_factor = 1; }},
      {"sinkhorn", [](RunWeights& w, Profile&) { w.config.hc_sinkhorn_iters = 3; }},
      {"sinkhorn", [](RunWeights& w, Profile&) { w.config.hc_sinkhorn_iters = 5; }},
      {"kv_simulation", [](RunWeights&, Profile& p) { p.kv_sim = true; }},
      {"index_simulation", [](RunWeights&, Profile& p) { p.index_sim = true; }},
      {"rope", [](RunWeights& w, Profile&) { w.config.rope_theta = w.config.compress_rope_theta; }},
      {"rope", [](RunWeights& w, Profile&) { w.config.compress_rope_theta = w.config.rope_theta; }},
      {"rope", [](RunWeights& w, Profile&) { w.config.rope_scaling.reset(); }},
  };
  for (const Spoilt& one : all) {
    BrokenSide broken(
        compare_weights(), "f32",
        [&](const RunWeights& weights, const Profile& profile, const Ids& ids, int64_t layer, const Tensor& x) {
          RunWeights wrong = weights;
          Profile wrong_profile = profile;
          one.spoil(wrong, wrong_profile);
          return test::layer_of(test::right_ingredients(wrong, wrong_profile, ids), ids, layer, x);
        });
    SCOPED_TRACE(one.id);
    compare::PlainSide whole = plain_side(compare_weights(), "f32");
    expect_cause(compared(whole, broken), one.id, 1);
  }
}

// ---- Of unequal precision, where every row differs anyway.

TEST(MixedPrecision, AHiddenMistakeIsNamedOnItsSide) {
  BrokenSide broken(
      compare_weights(), "fp8",
      [](const RunWeights& weights, const Profile& profile, const Ids& ids, int64_t layer, const Tensor& x) {
        test::Ingredients with = test::right_ingredients(weights, profile, ids);
        with.layout.window -= 1;
        return test::layer_of(with, ids, layer, x);
      });
  compare::PlainSide whole = plain_side(compare_weights(), "bf16");
  expect_cause(compared(whole, broken), "window", 1);
  expect_cause(compared(broken, whole), "window", 0);
}

TEST(MixedPrecision, BytesReadAsNumbersAreNamed) {
  const Weights published = as_published(compare_weights());
  compare::PlainSide whole = plain_side(published, "bf16"),
                     broken = plain_side(with_bytes_as_numbers(published), "fp8");
  const Comparison found = compared(whole, broken);
  ASSERT_FALSE(found.walks.empty());
  EXPECT_EQ(found.walks[0].diagnosis->causes.at(0).id, "e8m0_as_number") << line_of(found);
  EXPECT_EQ(found.walks[0].diagnosis->causes.at(0).side, 1);
}

TEST(MixedPrecision, PrecisionAloneIsSaidToBePrecision) {
  const std::pair<const char*, const char*> pairs[] = {
      {"f32", "bf16"}, {"bf16", "fp8"}, {"fp8", "fp8_fp4"}, {"fp8", "f32"}};
  for (const auto& [a, b] : pairs) {
    compare::PlainSide left = plain_side(compare_weights(), a), right = plain_side(compare_weights(), b);
    expect_cause(compared(left, right), "precision", -1);
  }
}

// ---- What has no name gets none.

TEST(Unnamed, AMistakeOfNoKnownKindIsADepartureAtItsPlace) {
  BrokenSide broken(
      compare_weights(), "f32",
      [](const RunWeights& weights, const Profile& profile, const Ids& ids, int64_t layer, const Tensor& x) {
        LayerRecord record = test::layer_of(test::right_ingredients(weights, profile, ids), ids, layer, x);
        if (layer != 1) return record;
        record.sites[Site::attention] = record.sites[Site::attention] * 1.01;
        record.sites[Site::ffn_hc_post] = record.sites[Site::ffn_hc_post] * 1.01;
        return record;
      });
  compare::PlainSide whole = plain_side(compare_weights(), "f32");
  const Comparison found = compared(whole, broken);
  expect_cause(found, "departure", 1);
  EXPECT_EQ(parting_of(found).layer, 1);
  EXPECT_EQ(parting_of(found).site, Site::attention);
}

TEST(Unnamed, OtherValuesAreNeitherStaleScalesNorBytes) {
  Weights other = compare_weights().clone();
  const at::NoGradGuard no_grad;
  other.layers[2].ffn.shared_w2.mul_(at::linspace(0.5, 2, 32));
  for (const char* profile : {"f32", "fp8"}) {
    compare::PlainSide whole = plain_side(compare_weights(), profile), broken = plain_side(other, profile);
    const Comparison found = compared(whole, broken);
    expect_cause(found, "weights", -1);
    EXPECT_THAT(line_of(found), HasSubstr("layers.2.ffn.shared_experts.w2.weight"));
  }
}

// Layers agree, the head does not.
TEST(Unnamed, AnotherHeadShowsInTheLogProbsAlone) {
  Weights other = compare_weights().clone();
  other.head = other.head * 1.25;
  compare::PlainSide whole = plain_side(compare_weights(), "f32"), broken = plain_side(other, "f32");
  const Comparison found = compared(whole, broken);
  expect_cause(found, "weights", -1);
  EXPECT_FALSE(parting_of(found).site.has_value());
  EXPECT_THAT(line_of(found), HasSubstr("head.weight"));
}

}  // namespace
