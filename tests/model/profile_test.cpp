// The precision profiles, layer by layer against reference dumps: a layer gets the dump's input and choices. Then a
// correct order of summation leaves most tokens equal to the bit, and a wrong rounding point nearly none. End to end no
// tolerance tells the two apart (tests/golden/model/README.md).
#include "model/profile.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/expect_error.h"
#include "fixture.h"
#include "model/transformer.h"

namespace test {
namespace {

constexpr double kTokensEqual = 0.20, kIndexerSets = 0.02, kExpertSets = 0.01, kHeadL2 = 5e-4, kF32L2 = 1e-5;

double share(const Tensor& flags) { return flags.to(at::kDouble).mean().item<double>(); }
double tokens_equal(const Tensor& a, const Tensor& b) { return share((a == b).flatten(1).all(1)); }

struct LayerError {
  double equal = 0;  // share of tokens that are equal to the bit
  double l2 = 0;
};

class Profiles : public testing::Test {
 protected:
  void load(const std::string& dump, const model::Profile& profile) {
    fixture_ = load_fixture(fixture_folder("edges"), dump);
    profile_ = profile;
    run_ = RunModel(fixture_.masters, profile_);
    layout_ = model::make_layout(fixture_.config, fixture_.documents());
  }
  void load(const std::string& dump) { load(dump, model::Profile::parse(dump)); }
  int64_t num_layers() const { return fixture_.config.num_hidden_layers; }
  model::Pass pass(model::Choices* choices) const { return run_.pass(layout_, fixture_.ids(), nullptr, choices); }

  static model::Choices replayed() {
    model::Choices choices;
    choices.experts = choices.entries = model::Choices::Mode::replay;
    return choices;
  }
  model::Choices choices_of_dump() const {
    model::Choices choices = replayed();
    for (int64_t l = 0; l < num_layers(); ++l) {
      const std::string indexer = fmt::format("indexer.{}", l);
      choices.experts_TA.push_back(fixture_.rows(fmt::format("router.{}", l)).to(at::kInt));
      choices.entries_TA.push_back(fixture_.has(indexer) ? fixture_.rows(indexer).to(at::kInt) : Tensor());
    }
    return choices;
  }
  Tensor input_of(const model::Pass& run, int64_t layer) const {
    return layer == 0 ? model::embed_streams(run) : fixture_.rows(fmt::format("streams.{}", layer - 1));
  }
  // Every layer from the dump's input; with the dump's choices, or choosing (then `choices` holds what was chosen).
  std::vector<LayerError> layers(model::Choices& choices) const {
    const at::NoGradGuard no_grad;
    const model::Pass run = pass(&choices);
    std::vector<LayerError> errors;
    for (int64_t l = 0; l < num_layers(); ++l) {
      const Tensor got = model::forward_layer(run, l, input_of(run, l)),
                   wanted = fixture_.rows(fmt::format("streams.{}", l));
      errors.push_back({tokens_equal(got, wanted), relative_l2(got, wanted)});
    }
    return errors;
  }
  std::vector<LayerError> layers_with_choices_of_dump() const {
    model::Choices choices = choices_of_dump();
    return layers(choices);
  }
  // Share of tokens with another set, over all layers that choose.
  double sets_that_differ(const std::string& kind, const std::vector<Tensor>& chosen) const {
    std::vector<Tensor> differs;
    for (size_t l = 0; l < chosen.size(); ++l) {
      const std::string name = fmt::format("{}.{}", kind, l);
      if (fixture_.has(name)) differs.push_back((chosen[l] != fixture_.rows(name)).any(1));
    }
    return share(at::cat(differs));
  }
  double indexer_sets_that_differ() const {
    model::Choices choices;
    layers(choices);
    return sets_that_differ("indexer", choices.entries_TA);
  }
  // Something that tells the profile apart from the dump's: a layer with nearly no equal token.
  void expect_rejected(const std::string& what) const {
    double least = 1;
    for (const LayerError& error : layers_with_choices_of_dump()) least = std::min(least, error.equal);
    if (other_fixture()) std::printf("%s: least share of equal tokens %.0f %%\n", what.c_str(), 100 * least);
    EXPECT_LT(least, kTokensEqual) << what;
  }

  Fixture fixture_;
  model::Profile profile_;
  RunModel run_;
  model::Layout layout_;
};

class RoundingProfiles : public Profiles, public testing::WithParamInterface<const char*> {
 protected:
  RoundingProfiles() { load(GetParam()); }
};

TEST_P(RoundingProfiles, LayersEqualTheReferenceToTheBitForMostTokens) {
  const auto errors = layers_with_choices_of_dump();
  for (size_t l = 0; l < errors.size(); ++l) {
    if (other_fixture())
      std::printf("layer %zu: %.0f %% of tokens equal, relative L2 %.1e\n", l, 100 * errors[l].equal, errors[l].l2);
    EXPECT_GE(errors[l].equal, kTokensEqual) << "layer " << l;
  }
}

TEST_P(RoundingProfiles, ChoicesFromTheReferencesInputsAreTheReferences) {
  model::Choices choices;
  layers(choices);
  const double experts = sets_that_differ("router", choices.experts_TA),
               entries = sets_that_differ("indexer", choices.entries_TA);
  if (other_fixture())
    std::printf("sets that differ: experts %.2f %%, entries %.2f %%\n", 100 * experts, 100 * entries);
  EXPECT_LE(experts, kExpertSets);
  EXPECT_LE(entries, kIndexerSets);
}

TEST_P(RoundingProfiles, TheHeadOnTheReferencesStreamsGivesItsLogits) {
  const at::NoGradGuard no_grad;
  const Tensor streams = fixture_.rows(fmt::format("streams.{}", num_layers() - 1));
  const double error = relative_l2(run_.logits(streams), fixture_.rows("logits"));
  if (other_fixture()) std::printf("head: relative L2 %.1e\n", error);
  EXPECT_LE(error, kHeadL2);
}

TEST_P(RoundingProfiles, TheMtpBlockEqualsTheReference) {
  if (!fixture_.has("mtp.streams")) GTEST_SKIP() << "this dump has no MTP";
  const at::NoGradGuard no_grad;
  const int64_t batch = fixture_.at("input_ids").size(0), count = fixture_.at("input_ids").size(1);
  const Tensor ids = fixture_.at("input_ids");
  const Tensor last = fixture_.at(fmt::format("streams.{}", num_layers() - 1)).to(at::kFloat);
  const std::vector<model::Span> spans(static_cast<size_t>(batch), model::Span{0, count - 1, 0});
  const model::Layout shorter = model::make_layout(fixture_.config, spans);
  model::Choices choices = replayed();
  choices.experts_TA.resize(static_cast<size_t>(num_layers()) + 1);
  choices.experts_TA.back() = fixture_.rows("router.mtp").to(at::kInt);
  const model::Pass run = run_.pass(shorter, ids.narrow(1, 0, count - 1).flatten(), nullptr, &choices);
  const Tensor streams = last.narrow(1, 0, count - 1).flatten(0, 1), next = ids.narrow(1, 1, count - 1).flatten();
  const Tensor wanted = fixture_.rows("mtp.streams"), got = model::mtp_streams(run, streams, next);
  const double logits = relative_l2(model::mtp_logits(run_.weights, profile_, wanted), fixture_.rows("mtp.logits"));
  if (other_fixture())
    std::printf("MTP: %.0f %% of tokens equal, logits %.1e\n", 100 * tokens_equal(got, wanted), logits);
  EXPECT_GE(tokens_equal(got, wanted), kTokensEqual);
  EXPECT_LE(logits, kHeadL2);
  choices.experts = model::Choices::Mode::record;
  model::mtp_streams(run, streams, next);
  EXPECT_LE(share((choices.experts_TA.back() != fixture_.rows("router.mtp")).any(1)), kExpertSets);
}

TEST_P(RoundingProfiles, QuantisedWeightsHaveTheReferencesBytes) {
  size_t in_dump = 0, compared = 0;
  for (const auto& entry : fixture_.reference) in_dump += entry.first.ends_with(".bytes");
  const model::Weights& masters = fixture_.masters;
  masters.visit_named([&](const model::TensorInfo& info, const Tensor& master) {
    const std::string key = "quant." + info.name;
    const auto format = model::run_format(info, profile_);
    if (!fixture_.has(key + ".bytes") || !format) return;
    const tensor::Quantised quantised = tensor::quantise_blocks(model::published_value(info, master), *format);
    EXPECT_TRUE(at::equal(quantised.codes, fixture_.at(key + ".bytes"))) << info.name;
    EXPECT_TRUE(at::equal(quantised.scales, fixture_.at(key + ".scales"))) << info.name;
    ++compared;
  });
  EXPECT_EQ(compared, profile_.quantise ? in_dump : 0);
  if (!other_fixture()) {
    EXPECT_EQ(in_dump, 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoundingProfiles, testing::Values("bf16", "fp8", "fp8_fp4"),
                         [](const auto& param) { return std::string(param.param); });

TEST_F(Profiles, F32StreamsEqualTheReference) {
  load("f32");
  for (const LayerError& error : layers_with_choices_of_dump()) {
    if (other_fixture()) std::printf("f32: relative L2 %.1e\n", error.l2);
    EXPECT_LE(error.l2, kF32L2);
  }
}

model::Profile changed(const std::string& name, bool model::Profile::*field) {
  model::Profile profile = model::Profile::parse(name);
  profile.*field = !(profile.*field);
  return profile;
}

TEST_F(Profiles, AWrongRoundingPointIsSeenInTheStreams) {
  using P = model::Profile;
  for (const std::string dump : {"fp8", "fp8_fp4"}) {
    load(dump, changed(dump, &P::kv_sim));
    expect_rejected(dump + " without KV simulation");
    load(dump, changed(dump, &P::quantise));
    expect_rejected(dump + " without quantised weights and activations");
    load(dump, changed(dump, &P::fp4_experts));
    expect_rejected(dump + " with the other format of experts");
    load(dump, changed(dump, &P::round_bf16));
    expect_rejected(dump + " without rounding to bf16");
  }
  load("bf16", changed("bf16", &P::kv_sim));
  expect_rejected("bf16 with KV simulation");
  load("bf16", model::Profile::parse("f32"));
  expect_rejected("f32 in place of bf16");
}

TEST_F(Profiles, UnquantisedActivationsAreSeenInTheStreams) {
  for (const std::string dump : {"fp8", "fp8_fp4"}) {
    load(dump);
    run_.profile.quantise = false;  // the weights stay quantised
    expect_rejected(dump + " with activations not quantised");
  }
}

TEST_F(Profiles, AMissingIndexerSimulationIsSeenInTheChoices) {
  for (const std::string dump : {"fp8", "fp8_fp4"}) {
    load(dump, changed(dump, &model::Profile::index_sim));
    EXPECT_GT(indexer_sets_that_differ(), 2 * kIndexerSets) << dump;
  }
}

TEST(Profile, NamesGiveTheirRoundingPointsAndOthersAreRefused) {
  EXPECT_FALSE(model::Profile::parse("f32").round_bf16);
  EXPECT_TRUE(model::Profile::parse("bf16").round_bf16);
  EXPECT_FALSE(model::Profile::parse("bf16").quantise);
  EXPECT_TRUE(model::Profile::parse("fp8").quantise);
  EXPECT_FALSE(model::Profile::parse("fp8").fp4_experts);
  EXPECT_TRUE(model::Profile::parse("fp8_fp4").fp4_experts);
  expect_error(base::Code::invalid_argument, {"fp16", "f32, bf16, fp8 or fp8_fp4"},
               [] { model::Profile::parse("fp16"); });
}

}  // namespace
}  // namespace test
