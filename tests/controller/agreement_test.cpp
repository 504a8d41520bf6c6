// One policy, no gap: what the rollout engine reports for its answers is what the actor computes for them, to the bit,
// wherever both run one profile; so a pass for the old log-probs is not needed, and routing replay changes nothing.
#include <gtest/gtest.h>

#include "actor/actor.h"
#include "metrics/names.h"
#include "rollout/tiny_engine.h"

namespace controller {
namespace {

using test::random_prompt;
using test::request;
using test::run_all;
using test::tiny_engine;
using test::tiny_settings;
using test::tiny_weights;

constexpr double kTemperature = 0.7;
constexpr int64_t kVersion = 1;  // that tiny_engine publishes

actor::ActorSettings actor_settings(const std::string& profile) {
  actor::ActorSettings settings;
  settings.profile = profile;
  settings.tokens_per_microbatch = 150;  // several packs of several sequences
  settings.head_rows = 13;
  settings.optimizer.schedule.lr = 1e-3;
  return settings;
}

actor::Actor make_actor(const actor::ActorSettings& settings) { return {settings, tiny_weights().clone()}; }

// Answers of an engine to prompts of very different length, in groups of 3.
std::vector<data::Group> groups_of(rollout::Engine& engine, bool record_experts = false) {
  std::vector<data::Group> groups;
  std::map<int64_t, size_t> group_of;  // by request
  for (uint64_t n = 0; n < 6; ++n) {
    data::Group& group = groups.emplace_back();
    group.id = static_cast<int64_t>(n);
    group.problem.prompt_ids = random_prompt(1 + static_cast<int64_t>(n * 29 % 100), n);
    rollout::Request r = request(group.problem.prompt_ids, 20, 3, n + 1);
    r.sampling.temperature = kTemperature;
    r.record_experts = record_experts;
    group_of[engine.submit(std::move(r))] = groups.size() - 1;
  }
  for (rollout::Output& output : run_all(engine)) {
    data::Sample sample;
    sample.index = output.index;
    sample.response_ids = std::move(output.response_ids);
    sample.log_probs = std::move(output.log_probs);
    sample.versions = std::move(output.versions);
    sample.experts = std::move(output.experts);
    sample.reward = static_cast<double>(output.index == 1);
    groups[group_of.at(output.request)].samples.push_back(std::move(sample));
  }
  return groups;
}

std::vector<actor::Scored> scores_of(const actor::Actor& actor, const std::vector<data::Group>& groups) {
  std::vector<actor::ScoreRequest> requests;
  for (const data::Group& group : groups) {
    for (const data::Sample& sample : group.samples) {
      requests.push_back({test::joined(group.problem.prompt_ids, sample.response_ids),
                          static_cast<int64_t>(group.problem.prompt_ids.size())});
    }
  }
  return actor.score(requests, kTemperature);
}

class Agreement : public testing::TestWithParam<const char*> {};

TEST_P(Agreement, TheActorComputesTheLogProbsThatTheEngineReported) {
  rollout::EngineSettings settings = tiny_settings(GetParam());
  settings.prefill_chunk = 17;
  const auto engine = tiny_engine(settings);
  const std::vector<data::Group> groups = groups_of(*engine);
  const actor::Actor actor = make_actor(actor_settings(GetParam()));
  const std::vector<actor::Scored> scored = scores_of(actor, groups);
  size_t next = 0;
  for (const data::Group& group : groups) {
    for (const data::Sample& sample : group.samples) EXPECT_EQ(scored[next++].log_probs, sample.log_probs) << group.id;
  }
}

TEST_P(Agreement, AfterAnUpdateTheNewWeightsAgreeToo) {
  const auto engine = tiny_engine(tiny_settings(GetParam()));
  actor::Actor actor = make_actor(actor_settings(GetParam()));
  for (int64_t step = 1; step <= 2; ++step) {
    const std::vector<data::Group> groups = groups_of(*engine);
    const actor::StepReport report = actor.train(step, {groups, kTemperature, kVersion + step - 1});
    EXPECT_EQ(report.metrics.at(std::string(metrics::kGapMax)), 0) << "step " << step;
    test::publish(*engine, actor.masters(), kVersion + step);
  }
}

std::map<std::string, tensor::Tensor> trained(const std::string& profile, const std::vector<data::Group>& groups,
                                              std::optional<int64_t> exact_version, double& loss) {
  actor::ActorSettings settings = actor_settings(profile);
  settings.num_minibatches = 2;
  settings.epochs = 2;
  actor::Actor actor = make_actor(settings);
  const actor::StepReport report = actor.train(1, {groups, kTemperature, exact_version});
  loss = report.metrics.at(std::string(metrics::kLossPolicy));
  std::map<std::string, tensor::Tensor> masters;
  for (const auto& [name, tensor] : actor.state().tensors) masters[name] = tensor.clone();
  return masters;
}

TEST_P(Agreement, WithoutThePassForOldLogProbsLossAndWeightsAreTheSame) {
  const auto engine = tiny_engine(tiny_settings(GetParam()));
  const std::vector<data::Group> groups = groups_of(*engine);
  double with_pass = 0, without = 0;
  const auto a = trained(GetParam(), groups, std::nullopt, with_pass),
             b = trained(GetParam(), groups, kVersion, without);
  EXPECT_EQ(with_pass, without);
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
}

TEST_P(Agreement, ReplayedExpertsAreThoseThatTheActorChoosesItself) {
  const auto engine = tiny_engine(tiny_settings(GetParam()));
  const std::vector<data::Group> groups = groups_of(*engine, /*record_experts=*/true);
  actor::ActorSettings replaying = actor_settings(GetParam());
  replaying.routing_replay = true;
  actor::Actor choosing = make_actor(actor_settings(GetParam())), following = make_actor(replaying);
  const auto a = choosing.train(1, {groups, kTemperature, {}}), b = following.train(1, {groups, kTemperature, {}});
  EXPECT_EQ(a.metrics.at(std::string(metrics::kLossPolicy)), b.metrics.at(std::string(metrics::kLossPolicy)));
  for (const auto& [name, tensor] : choosing.state().tensors)
    EXPECT_TRUE(at::equal(tensor, following.state().tensors.at(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(Profiles, Agreement, testing::Values("f32", "bf16", "fp8", "fp8_fp4"),
                         [](const auto& param) { return std::string(param.param); });

TEST(RoutingReplay, ExpertsThatWereNotRecordedAreRefusedNamingTheSample) {
  const auto engine = tiny_engine(tiny_settings("f32"));
  const std::vector<data::Group> groups = groups_of(*engine);
  actor::ActorSettings settings = actor_settings("f32");
  settings.routing_replay = true;
  actor::Actor actor = make_actor(settings);
  try {
    actor.train(1, {groups, kTemperature, {}});
    ADD_FAILURE() << "not refused";
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("group 0, sample 0"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("routing replay"), std::string::npos) << error.what();
  }
}

// With other profiles on the two sides the replayed experts are really used: the actor's own choice would differ.
TEST(RoutingReplay, ChangesWhatAnActorOfAnotherPrecisionComputes) {
  const auto engine = tiny_engine(tiny_settings("fp8_fp4"));
  std::vector<data::Group> groups = groups_of(*engine, /*record_experts=*/true);
  actor::ActorSettings replaying = actor_settings("bf16");
  replaying.routing_replay = true;
  for (data::Group& group : groups) {  // experts that nobody would choose: all tokens to 2 and 3
    for (data::Sample& sample : group.samples) {
      for (size_t i = 0; i < sample.experts.size(); ++i) sample.experts[i] = static_cast<uint16_t>(2 + i % 2);
    }
  }
  actor::Actor choosing = make_actor(actor_settings("bf16")), following = make_actor(replaying);
  const auto a = choosing.train(1, {groups, kTemperature, {}}), b = following.train(1, {groups, kTemperature, {}});
  EXPECT_GT(b.metrics.at(std::string(metrics::kGapMean)), a.metrics.at(std::string(metrics::kGapMean)));
}

}  // namespace
}  // namespace controller
