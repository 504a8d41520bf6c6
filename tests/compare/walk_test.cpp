#include "compare/walk.h"

#include <gtest/gtest.h>

#include "compare/models.h"
#include "weight_sync/in_process.h"

namespace compare {
namespace {

using test::compare_config;
using test::compared;
using test::plain_side;

EngineSide engine_side(const std::string& profile, int64_t chunk) {
  rollout::EngineSettings settings;
  settings.profile = profile;
  settings.num_slots = 3;
  settings.max_context = 64;
  settings.max_batch_tokens = 32;
  settings.prefill_chunk = chunk;
  auto engine = std::make_unique<rollout::Engine>(compare_config(), settings);
  weight_sync::WeightsSource source(test::compare_weights(), weight_sync::publish_as(model::Profile::parse(profile)));
  weight_sync::publish(source, engine->weights(), 1);
  return {"engine", std::move(engine), {}};
}

ActorSide actor_side(const std::string& profile) {
  actor::ActorSettings settings;
  settings.profile = profile;
  settings.tokens_per_microbatch = 50;
  return {"actor", std::make_unique<actor::Actor>(settings, test::compare_weights()), {}};
}

class SameProfile : public testing::TestWithParam<const char*> {};

// The engine by chunks over a cache, the actor by packs, the plain pass: every value at every site, to the bit.
TEST_P(SameProfile, EngineActorAndPlainPassAreEqualAtEverySite) {
  CompareOptions options;
  options.walk = CompareOptions::WalkWhen::always;
  EngineSide engine = engine_side(GetParam(), 5);
  ActorSide actor = actor_side(GetParam());
  PlainSide plain = plain_side(test::compare_weights(), GetParam());
  for (const auto& [a, b] : {std::pair<Side*, Side*>{&engine, &actor}, {&actor, &plain}, {&engine, &plain}}) {
    const Comparison found = compared(*a, *b, options);
    EXPECT_TRUE(found.differences.all_equal()) << a->name() << ", " << b->name();
    ASSERT_EQ(found.walks.size(), 2u);
    for (const WalkedSequence& walked : found.walks) {
      EXPECT_FALSE(walked.walk.parting.has_value());
      EXPECT_FALSE(walked.diagnosis.has_value()) << walked.diagnosis->line;
      std::map<int64_t, size_t> sites;
      for (const SiteRow& row : walked.walk.sites) {
        EXPECT_EQ(row.differing, 0) << row.layer << " " << site_key(row.site);
        if (row.rows > 0) ++sites[row.layer];
      }
      // A window layer has 12 sites, the first the embedding too; csa 3 more, hca 1; after the last: the final hidden.
      EXPECT_EQ(sites, (std::map<int64_t, size_t>{{0, 13}, {1, 15}, {2, 12}, {3, 13}, {4, 1}}));
      EXPECT_EQ(walked.walk.streams.size(), 5u);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Profiles, SameProfile, testing::Values("f32", "bf16", "fp8", "fp8_fp4"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(Walk, GivesTheLogProbsOfAPlainForwardPass) {
  PlainSide plain = plain_side(test::compare_weights(), "f32");
  const Ids ids = test::random_ids(30, 9);
  const std::unique_ptr<Forward> a = plain.forward(), b = plain.forward();
  const Walk walked = walk(*a, *b, ids, {.temperature = 0.7}, {});
  // The oracle: model::forward_streams as a whole, log-softmax by libtorch in f64.
  const at::NoGradGuard no_grad;
  const model::RunWeights& weights = a->weights();
  const test::Ingredients with = test::right_ingredients(weights, a->profile(), ids);
  const Tensor streams = model::forward_streams({.weights = weights,
                                                 .profile = with.profile,
                                                 .layout = with.layout,
                                                 .rope = with.rope,
                                                 .ids_T = test::ids_tensor(ids)});
  const Tensor logits =
      model::head_logits(weights, model::final_hidden(weights, with.profile, streams)).to(at::kDouble);
  const Tensor log_probs = at::log_softmax(logits / 0.7, 1);
  ASSERT_EQ(walked.log_probs[0].size(), ids.size());
  EXPECT_FALSE(walked.log_probs[0][0].has_value());
  for (size_t t = 1; t < ids.size(); ++t) {
    EXPECT_NEAR(*walked.log_probs[0][t], log_probs[static_cast<int64_t>(t) - 1][ids[t]].item<double>(), 1e-4);
  }
}

// Only tokens from the changed one on can differ: the map shows where.
TEST(Walk, TheHeatMapShowsWhichTokensDiffer) {
  model::Weights other = test::compare_weights().clone();
  const Ids ids = test::random_ids(40, 3);
  const int32_t id = ids[25];
  const auto first = static_cast<size_t>(std::find(ids.begin(), ids.end(), id) - ids.begin());
  other.embed[id] *= 1.5;
  PlainSide a = plain_side(test::compare_weights(), "f32"), b = plain_side(other, "f32");
  const auto fa = a.forward(), fb = b.forward();
  const Walk walked = walk(*fa, *fb, ids, {}, {});
  ASSERT_TRUE(walked.parting.has_value());
  EXPECT_EQ(walked.parting->site, model::Site::embedding);
  EXPECT_EQ(walked.parting->difference.first, static_cast<int64_t>(first));
  for (const std::vector<float>& layer : walked.streams) {
    for (size_t t = 0; t < first; ++t) EXPECT_EQ(layer[t], 0.0f);
    EXPECT_GT(layer[first], 0.01f);
  }
  for (size_t t = 0; t < ids.size(); ++t) EXPECT_EQ(walked.streams[0][t] > 0, ids[t] == id);
  EXPECT_NEAR(walked.streams[0][first], 1.0 / 3, 1e-6);  // |x - 1.5 x| / |1.5 x|
  const Diagnosis found = diagnose(*fa, *fb, walked, true, {});
  EXPECT_EQ(found.causes.at(0).id, "weights");
  EXPECT_NE(found.line.find("embed.weight"), std::string::npos) << found.line;
}

TEST(Walk, ModelsOfOtherSizesAreNotWalked) {
  model::Config smaller = compare_config();
  smaller.hidden_size = 64;
  EXPECT_EQ(why_not_side_by_side(compare_config(), compare_config()), std::nullopt);
  EXPECT_EQ(why_not_side_by_side(compare_config(), smaller), "hidden_size is 160 on A and 64 on B");
  const model::Weights weights = test::compare_weights_of(smaller);
  PlainSide a = plain_side(test::compare_weights(), "f32"), b = plain_side(weights, "f32");
  const Comparison found = compared(a, b);
  EXPECT_EQ(found.no_walk, "hidden_size is 160 on A and 64 on B");
  EXPECT_TRUE(found.walks.empty());
}

TEST(Walk, ALongSequenceIsWalkedToItsFirstDifference) {
  model::Weights other = test::compare_weights().clone();
  Ids ids = test::random_ids(60, 3);
  for (int32_t& id : ids) id = id == 7 ? 8 : id;
  ids[50] = 7;
  other.embed[7] *= 1.5;
  PlainSide a = plain_side(test::compare_weights(), "f32"), b = plain_side(other, "f32");
  CompareOptions options;
  options.walk_tokens = 16;
  const Comparison found = compare_sides(a, b, {{ids, "x:1"}}, options, {});
  ASSERT_EQ(found.walks.size(), 1u);
  EXPECT_EQ(found.walks[0].walk.ids.size(),
            52u);  // the token after the changed one is the first whose log-prob differs
}

TEST(Walk, StopsWhenTold) {
  PlainSide a = plain_side(test::compare_weights(), "f32"), b = plain_side(test::compare_weights(), "f32");
  int calls = 0;
  const Watch watch{[&](std::string_view, int64_t, int64_t) { ++calls; }, [&] { return calls >= 3; }};
  EXPECT_THROW(compare_sides(a, b, test::sequences(), {}, watch), Stopped);
  EXPECT_EQ(calls, 3);
}

// A scorer whose log-probs are not those of its layers.
class OffByATemperature : public PlainSide {
 public:
  OffByATemperature() : PlainSide("off", model::RunWeights::frozen(test::compare_weights(), {}), {}, {}) {}
  std::vector<LogProbs> score(std::span<const Sequence> sequences, double, const Watch& watch) override {
    return PlainSide::score(sequences, 0.5, watch);
  }
};
TEST(Walk, AMistakeOutsideOfTheLayersIsSaidToBeOutside) {
  PlainSide a = plain_side(test::compare_weights(), "f32");
  OffByATemperature b;
  test::expect_cause(compared(a, b), "scoring", 1);
}

}  // namespace
}  // namespace compare
