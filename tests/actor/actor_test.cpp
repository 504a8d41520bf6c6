#include "actor/actor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "actor/tiny.h"
#include "base/error.h"
#include "metrics/names.h"

namespace actor {
namespace {

using actor_test::differing;
using actor_test::frozen_state;
using actor_test::tiny_groups;
using actor_test::tiny_settings;
using actor_test::tiny_weights;
using tensor::Tensor;

double metric(const StepReport& report, std::string_view name) { return report.metrics.at(std::string(name)); }

// With beta1 = 0 and no norm limit the first moment after one update is the gradient itself.
ActorSettings gradient_settings() {
  ActorSettings settings = tiny_settings();
  settings.optimizer.adamw.beta1 = 0;
  settings.optimizer.max_grad_norm = 0;
  return settings;
}

NamedTensors gradients_of(const ActorSettings& settings, std::span<const data::Group> groups) {
  Actor actor(settings, tiny_weights());
  actor.train(0, {groups, 1, {}});
  NamedTensors gradients;
  for (const auto& [name, tensor] : actor.state().tensors) {
    if (name.starts_with("m.")) gradients[name] = tensor.clone();
  }
  return gradients;
}

double relative_difference(const NamedTensors& a, const NamedTensors& b) {
  double difference = 0, norm = 0;
  for (const auto& [name, tensor] : a) {
    difference += (tensor - b.at(name)).square().sum().item<double>();
    norm += tensor.square().sum().item<double>();
  }
  EXPECT_EQ(a.size(), b.size());
  EXPECT_GT(norm, 0);
  return std::sqrt(difference / norm);
}

// f32 sums over about 300 tokens in another order: sqrt(300) * 6e-8 = 1e-6 each, carried through four layers. Measured:
// 2.2e-6 to 3.0e-6. A denominator that is off by one token would be 3e-3.
constexpr double kOtherOrder = 1e-5;

class EachReduction : public testing::TestWithParam<std::string> {};

TEST_P(EachReduction, GradientDoesNotDependOnThePacking) {  // cases loss-01, lp-03
  ActorSettings settings = gradient_settings();
  settings.loss.reduction = GetParam();
  settings.loss.max_tokens = 14;
  settings.loss.kl_loss_coef = 0.1;
  settings.loss.entropy_coef = 0.01;
  const std::vector<data::Group> groups = tiny_groups(Actor(settings, tiny_weights()), 6);
  settings.tokens_per_microbatch = 1000;
  const NamedTensors together = gradients_of(settings, groups);
  settings.tokens_per_microbatch = 40;
  EXPECT_LT(relative_difference(together, gradients_of(settings, groups)), kOtherOrder);
  settings.tokens_per_microbatch = 1;  // each sequence alone
  EXPECT_LT(relative_difference(together, gradients_of(settings, groups)), kOtherOrder);

  std::vector<data::Group> permuted(groups.rbegin(), groups.rend());
  for (data::Group& group : permuted) std::reverse(group.samples.begin(), group.samples.end());
  settings.tokens_per_microbatch = 40;
  EXPECT_LT(relative_difference(together, gradients_of(settings, permuted)), kOtherOrder);
}

INSTANTIATE_TEST_SUITE_P(Names, EachReduction, testing::Values("token", "sample", "constant"),
                         [](const auto& each) { return each.param; });

TEST(Actor, RecomputeGivesTheSameGradientToTheBit) {
  for (const char* profile : {"f32", "bf16", "fp8"}) {
    ActorSettings settings = gradient_settings();
    settings.profile = profile;
    const std::vector<data::Group> groups = tiny_groups(Actor(settings, tiny_weights()), 3);
    settings.recompute = false;
    const NamedTensors kept = gradients_of(settings, groups);
    settings.recompute = true;
    EXPECT_THAT(differing(kept, gradients_of(settings, groups)), testing::IsEmpty()) << profile;
  }
}

TEST(Actor, OnlyTensorsThatLearnMove) {
  Actor actor(tiny_settings(), tiny_weights());
  const std::vector<data::Group> groups = tiny_groups(actor, 3);
  const model::Weights before = actor.masters().clone();
  NamedTensors old;
  before.visit([&](const model::TensorInfo& info, const Tensor& value) { old[info.name] = value; });
  actor.train(0, {groups, 1, {}});
  int64_t moved = 0;
  actor.masters().visit([&](const model::TensorInfo& info, const Tensor& value) {
    const bool same = at::equal(value, old.at(info.name));
    // MTP has no loss yet, so it has no gradient and does not even decay.
    const bool should_move = info.learns && !info.name.starts_with("mtp.");
    EXPECT_EQ(same, !should_move) << info.name;
    moved += same ? 0 : 1;
  });
  EXPECT_GT(moved, 50);
  EXPECT_EQ(actor.updates(), 1);
}

TEST(Actor, ResumedActorRepeatsTheNextStepToTheBit) {
  ActorSettings settings = tiny_settings();
  settings.loss.kl_loss_coef = 0.05;
  settings.num_minibatches = 2;
  settings.optimizer.schedule.warmup = 3;
  Actor actor(settings, tiny_weights());
  const std::vector<data::Group> first = tiny_groups(actor, 4), second = tiny_groups(actor, 4, 4, 0.05f, 6);
  actor.train(0, {first, 1, {}});
  const ActorState saved = frozen_state(actor);
  const StepReport undisturbed = actor.train(1, {second, 1, {}});

  Actor resumed(settings, tiny_weights(99));
  resumed.load_state(saved, "test");
  StepReport repeated = resumed.train(1, {second, 1, {}});
  EXPECT_THAT(differing(actor.state().tensors, resumed.state().tensors), testing::IsEmpty());
  EXPECT_EQ(actor.state().json, resumed.state().json);
  for (const auto& [name, value] : undisturbed.metrics) {
    if (name.starts_with(metrics::kTimePrefix)) continue;
    EXPECT_EQ(value, repeated.metrics.at(name)) << name;
  }
}

TEST(Actor, RefusesAStateOfAnotherModelAndKeepsItsOwn) {
  Actor actor(tiny_settings(), tiny_weights());
  actor.train(0, {tiny_groups(actor, 2), 1, {}});
  const ActorState own = frozen_state(actor);
  const auto refused = [&](auto&& change) {
    ActorState state = frozen_state(actor);
    change(state);
    EXPECT_THROW(actor.load_state(state, "test"), base::Error);
    EXPECT_THAT(differing(own.tensors, actor.state().tensors), testing::IsEmpty());
  };
  refused([](ActorState& s) { s.tensors.erase("master.embed.weight"); });
  refused([](ActorState& s) { s.tensors["master.embed.weight"] = at::zeros({24, 31}); });
  refused([](ActorState& s) { s.tensors["master.embed.weight"] = at::zeros({24, 32}, at::kDouble); });
  refused([](ActorState& s) { s.tensors["master.extra"] = at::zeros({1}); });
  refused([](ActorState& s) { s.tensors["surprise"] = at::zeros({1}); });
  refused([](ActorState& s) { s.tensors["reference.embed.weight"] = at::zeros({24, 32}); });
  refused([](ActorState& s) { s.tensors.erase("v.embed.weight"); });
  refused([](ActorState& s) { s.json["format"] = 2; });
  refused([](ActorState& s) { s.json.erase("updates"); });
  refused([](ActorState& s) { s.json["stop_rules"] = 3; });
  EXPECT_NO_THROW(actor.load_state(own, "test"));
}

TEST(Actor, AStepWhoseGradientIsNotFiniteIsSkippedAndChangesNothing) {
  ActorSettings settings = tiny_settings();
  settings.stop.max_skipped = 2;
  Actor healthy(settings, tiny_weights());
  const std::vector<data::Group> groups = tiny_groups(healthy, 2);
  model::Weights broken = tiny_weights();
  broken.layers[1].attn_norm[3] = std::numeric_limits<float>::infinity();
  Actor actor(settings, broken);
  const ActorState before = frozen_state(actor);
  const StepReport report = actor.train(7, {groups, 1, {}});
  EXPECT_EQ(metric(report, metrics::kPolicySkipped), 1);
  EXPECT_FALSE(report.metrics.contains(std::string(metrics::kPolicyGradNorm)));
  EXPECT_GT(metric(report, metrics::kPolicyNonfinite), 0);
  EXPECT_THAT(differing(before.tensors, actor.state().tensors), testing::IsEmpty());
  EXPECT_EQ(actor.updates(), 0);
  EXPECT_FALSE(report.stop.has_value());
  const StepReport second = actor.train(8, {groups, 1, {}});
  ASSERT_TRUE(second.stop.has_value());
  EXPECT_THAT(*second.stop, testing::HasSubstr("step 8"));
}

TEST(Actor, TheGapIsZeroWhenTheRolloutIsTheActor) {
  Actor actor(tiny_settings(), tiny_weights());
  const std::vector<data::Group> groups = tiny_groups(actor, 3, 4, 0.0f);
  const StepReport report = actor.train(0, {groups, 1, {}});
  EXPECT_EQ(metric(report, metrics::kGapMax), 0);
  EXPECT_EQ(metric(report, metrics::kGapMean), 0);
  EXPECT_EQ(metric(report, metrics::kTisMean), 1);
  EXPECT_EQ(metric(report, metrics::kPolicyKl), 0);
  EXPECT_EQ(metric(report, metrics::kPolicyClipFraction), 0);
}

TEST(Actor, ALearningStepMakesGoodAnswersLikelierAndBadOnesLessSo) {
  Actor actor(tiny_settings(), tiny_weights());
  const std::vector<data::Group> groups = tiny_groups(actor, 1, 2);  // rewards 1 and 0
  std::vector<ScoreRequest> requests;
  for (const data::Sample& sample : groups[0].samples) {
    ScoreRequest request{groups[0].problem.prompt_ids, static_cast<int64_t>(groups[0].problem.prompt_ids.size())};
    request.ids.insert(request.ids.end(), sample.response_ids.begin(), sample.response_ids.end());
    requests.push_back(request);
  }
  const auto likelihood = [&](size_t i) {
    double sum = 0;
    const std::vector<Scored> scored = actor.score(requests, 1);
    for (const float lp : scored[i].log_probs) sum += lp;
    return sum;
  };
  const double good = likelihood(0), bad = likelihood(1);
  actor.train(0, {groups, 1, {}});
  EXPECT_GT(likelihood(0), good);
  EXPECT_LT(likelihood(1), bad);
}

TEST(Actor, SeveralUpdatesPerStepUseTheLogProbsOfTheFirstWeights) {
  ActorSettings settings = tiny_settings();
  settings.num_minibatches = 2;
  settings.epochs = 2;
  Actor actor(settings, tiny_weights());
  const std::vector<data::Group> groups = tiny_groups(actor, 5, 4, 0.0f);
  const StepReport report = actor.train(0, {groups, 1, {}});
  EXPECT_EQ(actor.updates(), 4);
  EXPECT_LT(metric(report, metrics::kGapMax), 1e-5);  // of the first weights, though three updates followed
  EXPECT_NE(metric(report, metrics::kPolicyKl), 0);
  EXPECT_GT(metric(report, metrics::kPolicyClipFraction), 0);  // the rate is high
  EXPECT_TRUE(report.metrics.contains(std::string(metrics::kTimeLogProb)));
}

TEST(Actor, TheFirstOfSeveralUpdatesIsTheOnlyOneOfASingleUpdate) {
  ActorSettings settings = gradient_settings();
  settings.optimizer.schedule.lr = 0;  // the second epoch sees the same weights, its ratio is exactly 1
  settings.optimizer.adamw.weight_decay = 0;
  const std::vector<data::Group> groups = tiny_groups(Actor(settings, tiny_weights()), 3);
  const NamedTensors once = gradients_of(settings, groups);
  settings.epochs = 2;
  EXPECT_THAT(differing(once, gradients_of(settings, groups)), testing::IsEmpty());
}

TEST(Actor, TheReferenceIsTheStartPolicyAndStays) {
  ActorSettings settings = tiny_settings();
  settings.loss.kl_loss_coef = 0.5;
  settings.loss.kl_type = "k3";
  Actor actor(settings, tiny_weights());
  const std::vector<data::Group> groups = tiny_groups(actor, 3);
  EXPECT_EQ(metric(actor.train(0, {groups, 1, {}}), metrics::kLossKl), 0);
  EXPECT_GT(metric(actor.train(1, {groups, 1, {}}), metrics::kLossKl), 0);
}

TEST(Actor, KlInTheRewardLowersTheScoreOfAnswersThatLeftTheReference) {
  ActorSettings settings = tiny_settings();
  settings.loss.kl_reward_coef = 0.3;
  settings.loss.kl_type = "k1";
  settings.loss.truncated = "mask";
  Actor actor(settings, tiny_weights());
  std::vector<data::Group> groups = tiny_groups(actor, 2);
  groups[0].samples[2].finish = data::FinishReason::length;  // masked, but its score counts in its group
  for (data::Group& group : groups) {
    for (data::Sample& sample : group.samples) sample.reward = 0.5;
  }
  // At the start the KL of every answer is exactly 0 and so is every advantage.
  EXPECT_EQ(metric(actor.train(0, {groups, 1, {}}), metrics::kLossPolicy), 0);
  groups[0].samples[0].reward = 1;
  actor.train(1, {groups, 1, {}});
  for (data::Group& group : groups) {
    for (data::Sample& sample : group.samples) sample.reward = 0.5;
  }
  EXPECT_NE(metric(actor.train(2, {groups, 1, {}}), metrics::kLossPolicy), 0);  // equal rewards, unequal KL
}

TEST(Actor, MaskedAnswersCountInTheirGroupAndAsSamplesButGiveNoGradient) {  // case adv-06
  ActorSettings settings = gradient_settings();
  settings.loss.truncated = "mask";
  settings.loss.reduction = "sample";
  const std::vector<data::Group> plain = tiny_groups(Actor(settings, tiny_weights()), 2);
  std::vector<data::Group> cut = plain;
  cut[0].samples[2].finish = data::FinishReason::length;
  std::vector<data::Group> other = cut;
  other[0].samples[2].response_ids = {3};  // another answer in the masked place
  other[0].samples[2].log_probs = {-2};
  EXPECT_GT(relative_difference(gradients_of(settings, plain), gradients_of(settings, cut)), 1e-3);
  EXPECT_THAT(differing(gradients_of(settings, cut), gradients_of(settings, other)), testing::IsEmpty());
}

TEST(Actor, AStepWithEveryAnswerMaskedMakesNoUpdateAndReportsTrueLengths) {  // case loss-06
  ActorSettings settings = tiny_settings();
  settings.loss.truncated = "mask";
  Actor actor(settings, tiny_weights());
  std::vector<data::Group> groups = tiny_groups(actor, 2);
  for (data::Group& group : groups) {
    for (data::Sample& sample : group.samples) sample.finish = data::FinishReason::length;
  }
  const ActorState before = frozen_state(actor);
  const StepReport report = actor.train(0, {groups, 1, {}});
  EXPECT_THAT(differing(before.tensors, actor.state().tensors), testing::IsEmpty());
  EXPECT_EQ(metric(report, metrics::kResponseTruncated), 1);
  EXPECT_GT(metric(report, metrics::kResponseLengthMean), 0);
  EXPECT_FALSE(report.metrics.contains(std::string(metrics::kLossPolicy)));
}

TEST(Actor, GroupsWithEqualRewardsGiveAZeroGradient) {  // case adv-01
  ActorSettings settings = tiny_settings();
  Actor actor(settings, tiny_weights());
  std::vector<data::Group> groups = tiny_groups(actor, 2);
  for (data::Group& group : groups) {
    for (data::Sample& sample : group.samples) sample.reward = 0.1;
  }
  const StepReport report = actor.train(0, {groups, 1, {}});
  EXPECT_EQ(metric(report, metrics::kPolicyGradNorm), 0);
  EXPECT_EQ(metric(report, metrics::kLossPolicy), 0);
}

TEST(Actor,
     WithoutAGradientOnlyMatricesDecay) {  // not: norms, sinks, mHC parameters, ape (f32 as stored), what is frozen
  Actor actor(tiny_settings(), tiny_weights());
  std::vector<data::Group> groups = tiny_groups(actor, 2);
  for (data::Group& group : groups) {
    for (data::Sample& sample : group.samples) sample.reward = 1;
  }
  const NamedTensors before = frozen_state(actor).tensors;
  actor.train(0, {groups, 1, {}});
  actor.masters().visit([&](const model::TensorInfo& info, const Tensor& value) {
    const bool is_matrix = info.shape.size() == 2 && info.stored_as != model::StoredAs::f32;
    const bool should_decay = info.learns && is_matrix && !info.name.starts_with("mtp.");
    EXPECT_EQ(at::equal(value, before.at("master." + info.name)), !should_decay) << info.name;
  });
}

TEST(Actor, SupervisedTrainingLearnsOneExampleByHeart) {  // case lp-06: probability 1 to a known sequence
  ActorSettings settings = tiny_settings();
  settings.optimizer.schedule.lr = 2e-2;
  settings.optimizer.adamw.weight_decay = 0;
  Actor actor(settings, tiny_weights());
  const std::vector<SftExample> examples{{{3, 7, 1}, {9, 2, 14, 14, 5, 0}}};
  const double first = metric(actor.train_sft(0, examples), metrics::kLossSft);
  double last = first;
  for (int64_t step = 1; step < 60; ++step) last = metric(actor.train_sft(step, examples), metrics::kLossSft);
  EXPECT_GT(first, 1.5);
  EXPECT_LT(last, 0.02);
  const std::vector<ScoreRequest> requests{{{3, 7, 1, 9, 2, 14, 14, 5, 0}, 3}};
  const std::vector<Scored> scored = actor.score(requests, 1);
  for (const float lp : scored[0].log_probs) EXPECT_GT(lp, -0.1f);
}

TEST(Actor, EveryProfileTrains) {
  for (const char* profile : {"f32", "bf16", "fp8", "fp8_fp4"}) {
    ActorSettings settings = tiny_settings();
    settings.profile = profile;
    Actor actor(settings, tiny_weights());
    const std::vector<SftExample> examples{{{3, 7, 1}, {9, 2, 14, 14, 5, 0}}};
    const double first = metric(actor.train_sft(0, examples), metrics::kLossSft);
    double last = first;
    for (int64_t step = 1; step < 12; ++step) last = metric(actor.train_sft(step, examples), metrics::kLossSft);
    EXPECT_LT(last, 0.7 * first) << profile;
  }
}

TEST(Actor, ProgressEndsAtItsTotalAndMayAbandonAStep) {
  ActorSettings settings = tiny_settings();
  settings.num_minibatches = 2;
  settings.loss.kl_reward_coef = 0.1;
  settings.loss.truncated = "mask";
  Actor actor(settings, tiny_weights());
  std::vector<data::Group> groups = tiny_groups(actor, 4);
  groups[1].samples[0].finish = data::FinishReason::length;
  int64_t last = 0, all = 0;
  const ActorState before = frozen_state(actor);
  const auto stop_at_once = [](int64_t, int64_t) { throw std::runtime_error("interrupted"); };
  EXPECT_THROW(actor.train(0, {groups, 1, {}}, stop_at_once), std::runtime_error);
  EXPECT_THAT(differing(before.tensors, actor.state().tensors), testing::IsEmpty());
  actor.train(0, {groups, 1, {}}, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
  });
  EXPECT_GT(all, 0);
  EXPECT_EQ(last, all);
}

TEST(Actor, RefusesATemperatureThatTrainingCannotUse) {  // case lp-04
  Actor actor(tiny_settings(), tiny_weights());
  const std::vector<data::Group> groups = tiny_groups(actor, 1);
  for (const double temperature : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(actor.train(0, {groups, temperature, {}}), base::Error);
  }
}

TEST(Actor, NamesTheSampleThatItCannotLearnFrom) {
  Actor actor(tiny_settings(), tiny_weights(), std::vector<int32_t>{20, 21, 22, 23});
  const std::vector<data::Group> good = [&] {
    std::vector<data::Group> groups = tiny_groups(Actor(tiny_settings(), tiny_weights()), 2);
    for (data::Group& group : groups) {
      for (int32_t& id : group.problem.prompt_ids) id %= 20;
      for (data::Sample& sample : group.samples) {
        for (int32_t& id : sample.response_ids) id %= 20;
      }
    }
    return groups;
  }();
  EXPECT_NO_THROW(actor.train(0, {good, 1, {}}));
  const auto refused = [&](auto&& change) {
    std::vector<data::Group> groups = good;
    change(groups[1]);
    try {
      actor.train(0, {groups, 1, {}});
      ADD_FAILURE() << "was accepted";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.code(), base::Code::invalid_argument);
      EXPECT_THAT(error.what(), testing::HasSubstr("group 101"));
    }
  };
  refused([](data::Group& g) { g.problem.prompt_ids.clear(); });
  refused([](data::Group& g) { g.problem.prompt_ids[0] = 20; });  // below vocab_size, but without a token
  refused([](data::Group& g) { g.samples[1].response_ids[0] = -1; });
  refused([](data::Group& g) { g.samples[1].log_probs.push_back(0); });
  refused([](data::Group& g) { g.samples[1].reward = std::nan(""); });
}

TEST(Actor, ScoresAgreeWithThePlainForwardPassAtEachTemperature) {  // cases lp-02, lp-03, lp-06, lp-10
  Actor actor(tiny_settings(), tiny_weights());
  const std::vector<ScoreRequest> requests{{{5, 1, 9, 9, 17, 2, 11}, 3}, {{4, 8}, 1}, {{6}, 1}};
  const model::Profile profile = model::Profile::parse("f32");
  at::NoGradGuard no_grad;
  const model::RunWeights run = model::RunWeights::frozen(actor.masters(), profile);
  const model::Layout layout = model::make_layout(run.config, std::vector<model::Span>{{0, 7}});
  const model::RopeTables rope = model::RopeTables::make(run.config, 7, at::kCPU);
  const Tensor ids = at::tensor(std::vector<int64_t>{5, 1, 9, 9, 17, 2, 11}, at::kLong);
  const Tensor streams =
      model::forward_streams({.weights = run, .profile = profile, .layout = layout, .rope = rope, .ids_T = ids});
  const Tensor logits = model::head_logits(run, model::final_hidden(run, profile, streams));
  for (const double temperature : {0.5, 0.6, 1.0}) {
    const std::vector<Scored> scored = actor.score(requests, temperature);
    const Tensor log_p = at::log_softmax(logits / temperature, 1);
    ASSERT_EQ(scored[0].log_probs.size(), 4u);
    for (int64_t t = 0; t < 4; ++t) {  // position 3 + t is predicted by row 2 + t
      const Tensor row = log_p[2 + t];
      EXPECT_NEAR(scored[0].log_probs[static_cast<size_t>(t)], row[ids[3 + t].item<int64_t>()].item<double>(), 1e-5);
      EXPECT_NEAR(scored[0].entropies[static_cast<size_t>(t)], -(row.exp() * row).sum().item<double>(), 1e-5);
    }
    EXPECT_EQ(scored[1].log_probs.size(), 1u);
    EXPECT_EQ(scored[2].log_probs.size(), 0u);  // ends where scoring would begin
  }
  EXPECT_THROW(actor.score(std::vector<ScoreRequest>{{{4, 8}, 0}}, 1), base::Error);
  EXPECT_THROW(actor.score(std::vector<ScoreRequest>{{{4, 8}, 3}}, 1), base::Error);
  EXPECT_THROW(actor.score(std::vector<ScoreRequest>{{{4, 24}, 1}}, 1), base::Error);
}

TEST(ActorSettings, RefuseADeviceOrProfileThatDoesNotExist) {
  ActorSettings settings = tiny_settings();
  settings.device = "tpu9";
  EXPECT_THROW(Actor(settings, tiny_weights()), base::Error);
  settings = tiny_settings();
  settings.profile = "f64";
  EXPECT_THROW(Actor(settings, tiny_weights()), base::Error);
  settings = tiny_settings();
  settings.epochs = 0;
  EXPECT_THROW(Actor(settings, tiny_weights()), base::Error);
}

}  // namespace
}  // namespace actor
