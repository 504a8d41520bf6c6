// Small models with every mechanism at work, and sides over them, whole or broken.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "compare/comparison.h"
#include "compare/model_sides.h"
#include "tensor/formats/block_scale.h"

namespace test {

using at::Tensor;
using compare::Ids;
using model::Profile;
using model::RunWeights;
using model::Weights;

// Layer 0: window, hash-routed; 1: csa; 2: window, hash-routed; 3: hca. Matrices of more than one block of 128.
inline model::Config compare_config() {
  using model::LayerKind;
  model::Config c;
  c.vocab_size = 64;
  c.hidden_size = 160;
  c.layer_types = {LayerKind::window, LayerKind::csa, LayerKind::window, LayerKind::hca};
  c.num_hidden_layers = 4;
  c.hash_layers = {true, false, true, false};
  c.num_attention_heads = 2;
  c.head_dim = 32;
  c.qk_rope_head_dim = 16;
  c.q_lora_rank = 32;
  c.o_groups = 2;
  c.o_lora_rank = 16;
  c.sliding_window = 8;
  c.csa_ratio = 4;
  c.hca_ratio = 16;
  c.max_position_embeddings = 512;
  c.index_n_heads = 2;
  c.index_head_dim = 32;
  c.index_topk = 4;
  c.hc_mult = 3;
  c.hc_sinkhorn_iters = 4;  // not so many that one more changes nothing
  c.n_routed_experts = 4;
  c.num_experts_per_tok = 2;
  c.moe_intermediate_size = 32;
  c.num_nextn_predict_layers = 0;
  c.initializer_range = 0.1;
  c.swiglu_limit = 0.5;  // so that it is reached
  c.check("compare_config");
  return c;
}

// Nothing stands at 0 or 1, where a mistake would not show.
inline Weights compare_weights_of(const model::Config& config, uint64_t seed = 1) {
  Weights weights = Weights::initialise(config, seed);
  weights.visit([&](const model::TensorInfo& info, Tensor& value) {
    if (info.stored_as == model::StoredAs::i64) return;
    const bool biases =
        info.shape.size() < 2 || info.name.ends_with("ape") || info.name.find("hc_") != std::string::npos;
    if (!biases) return;
    base::Philox random(base::derive_seed(seed + 1, info.name));
    float* const values = value.data_ptr<float>();
    for (int64_t i = 0; i < value.numel(); ++i) values[i] += static_cast<float>(0.2 * random.next_normal());
  });
  return weights;
}

inline const Weights& compare_weights() {
  static const Weights weights = compare_weights_of(compare_config());
  return weights;
}

inline Ids random_ids(int64_t length, uint64_t seed) {
  base::Philox random(seed);
  Ids ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(random.next_below(64)));
  return ids;
}

inline std::vector<compare::Sequence> sequences(int64_t length = 40) {
  return {{random_ids(length, 3), "tokens:1"}, {random_ids(length / 2, 4), "tokens:2"}};
}

inline compare::PlainSide plain_side(const Weights& weights, const std::string& profile,
                                     const std::string& name = "plain") {
  return {name, RunWeights::frozen(weights, Profile::parse(profile)), Profile::parse(profile), {}};
}

// One layer as a pass without a cache computes it, from ingredients that the test may have spoilt.
struct Ingredients {
  const RunWeights& weights;
  Profile profile;
  model::Layout layout;
  model::RopeTables rope;
};

inline Ingredients right_ingredients(const RunWeights& weights, const Profile& profile, const Ids& ids) {
  const auto count = static_cast<int64_t>(ids.size());
  return {weights, profile, model::make_layout(weights.config, std::vector<model::Span>{{0, count}}),
          model::RopeTables::make(weights.config, count, at::kCPU)};
}

inline Tensor ids_tensor(const Ids& ids) { return at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong); }

inline compare::LayerRecord layer_of(const Ingredients& with, const Ids& ids, int64_t layer, const Tensor& streams) {
  const at::NoGradGuard no_grad;
  compare::LayerRecord record{layer, streams, {}};
  const model::Probe probe = [&](int64_t, model::Site site, const Tensor& value) {
    record.sites[site] = value.clone();
  };
  model::forward_layer({.weights = with.weights,
                        .profile = with.profile,
                        .layout = with.layout,
                        .rope = with.rope,
                        .ids_T = ids_tensor(ids),
                        .probe = &probe},
                       layer, streams);
  return record;
}

// What a broken engine computes for a layer.
using BrokenLayer = std::function<compare::LayerRecord(const RunWeights&, const Profile&, const Ids&, int64_t layer,
                                                       const Tensor& streams)>;

class BrokenForward : public compare::ModelForward {
 public:
  BrokenForward(const RunWeights& weights, const Profile& profile, BrokenLayer broken)
      : ModelForward(weights, profile, Tensor(), 0), broken_(std::move(broken)) {}
  compare::LayerRecord layer(int64_t layer, const Tensor& streams) override {
    return broken_(weights(), profile(), ids(), layer, streams);
  }

 private:
  BrokenLayer broken_;
};

// A side that claims to compute with these weights, and does not.
class BrokenSide : public compare::Side {
 public:
  BrokenSide(RunWeights weights, const std::string& profile, BrokenLayer broken)
      : weights_(std::move(weights)), profile_(Profile::parse(profile)), broken_(std::move(broken)) {}
  BrokenSide(const Weights& weights, const std::string& profile, BrokenLayer broken)
      : BrokenSide(RunWeights::frozen(weights, Profile::parse(profile)), profile, std::move(broken)) {}

  const std::string& name() const override { return name_; }
  std::unique_ptr<compare::Forward> forward() override {
    return std::make_unique<BrokenForward>(weights_, profile_, broken_);
  }
  std::vector<compare::LogProbs> score(std::span<const compare::Sequence> sequences, double temperature,
                                       const compare::Watch&) override {
    std::vector<compare::LogProbs> scores;
    for (const compare::Sequence& sequence : sequences) {
      BrokenForward pass(weights_, profile_, broken_);
      Tensor streams = pass.start(sequence.ids);
      for (int64_t l = 0; l < weights_.config.num_hidden_layers; ++l) streams = pass.layer(l, streams).output_TMD();
      scores.push_back(pass.log_probs(pass.final_hidden(streams), temperature));
    }
    return scores;
  }

 private:
  std::string name_ = "broken";
  RunWeights weights_;
  Profile profile_;
  BrokenLayer broken_;
};

inline compare::Comparison compared(compare::Side& a, compare::Side& b, compare::CompareOptions options = {}) {
  return compare::compare_sides(a, b, sequences(), options, {});
}

// The comparison found this cause, on this side, and no other.
inline void expect_cause(const compare::Comparison& comparison, const std::string& id, int side) {
  ASSERT_FALSE(comparison.walks.empty());
  EXPECT_FALSE(comparison.differences.all_equal());
  for (const compare::WalkedSequence& walked : comparison.walks) {
    ASSERT_TRUE(walked.diagnosis.has_value());
    ASSERT_EQ(walked.diagnosis->causes.size(), 1u)
        << walked.diagnosis->line << "; " << walked.diagnosis->causes[1].text;
    EXPECT_EQ(walked.diagnosis->causes[0].id, id) << walked.diagnosis->line;
    EXPECT_EQ(walked.diagnosis->causes[0].side, side) << walked.diagnosis->line;
  }
}

}  // namespace test
