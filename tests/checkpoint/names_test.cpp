// Every dialect of tensor names becomes the native one, and nothing else does.
#include "checkpoint/names.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "checkpoint/stored_form.h"
#include "model/weights.h"
#include "tensor/golden.h"

namespace {

using checkpoint::Part;
using checkpoint::to_native;
using checkpoint::Translation;

// The rows of the specification's tables 7.1 to 7.4 and the list of 7.6: native, transformers, HF-style engine.
struct Row {
  const char *native, *transformers, *engine;
};
constexpr Row kRows[] = {
    {"embed.weight", "model.embed_tokens.weight", "model.embed_tokens.weight"},
    {"head.weight", "lm_head.weight", "lm_head.weight"},
    {"norm.weight", "model.norm.weight", "model.norm.weight"},
    {"hc_head_fn", "model.hc_head.hc_fn", "model.hc_head_fn"},
    {"hc_head_base", "model.hc_head.hc_base", "model.hc_head_base"},
    {"hc_head_scale", "model.hc_head.hc_scale", "model.hc_head_scale"},
    {"L.attn_norm.weight", "L.input_layernorm.weight", "L.input_layernorm.weight"},
    {"L.ffn_norm.weight", "L.post_attention_layernorm.weight", "L.post_attention_layernorm.weight"},
    {"L.hc_attn_fn", "L.attn_hc.fn", "L.hc_attn_fn"},
    {"L.hc_attn_base", "L.attn_hc.base", "L.hc_attn_base"},
    {"L.hc_attn_scale", "L.attn_hc.scale", "L.hc_attn_scale"},
    {"L.hc_ffn_fn", "L.ffn_hc.fn", "L.hc_ffn_fn"},
    {"L.hc_ffn_base", "L.ffn_hc.base", "L.hc_ffn_base"},
    {"L.hc_ffn_scale", "L.ffn_hc.scale", "L.hc_ffn_scale"},
    {"L.attn.wq_a.weight", "L.self_attn.q_a_proj.weight", "L.self_attn.wq_a.weight"},
    {"L.attn.q_norm.weight", "L.self_attn.q_a_norm.weight", "L.self_attn.q_norm.weight"},
    {"L.attn.wq_b.weight", "L.self_attn.q_b_proj.weight", "L.self_attn.wq_b.weight"},
    {"L.attn.wkv.weight", "L.self_attn.kv_proj.weight", "L.self_attn.wkv.weight"},
    {"L.attn.kv_norm.weight", "L.self_attn.kv_norm.weight", "L.self_attn.kv_norm.weight"},
    {"L.attn.wo_a.weight", "L.self_attn.o_a_proj.weight", "L.self_attn.wo_a.weight"},
    {"L.attn.wo_b.weight", "L.self_attn.o_b_proj.weight", "L.self_attn.wo_b.weight"},
    {"L.attn.attn_sink", "L.self_attn.sinks", "L.self_attn.attn_sink"},
    {"L.attn.compressor.wkv.weight", "L.self_attn.compressor.kv_proj.weight", "L.self_attn.compressor.wkv.weight"},
    {"L.attn.compressor.wgate.weight", "L.self_attn.compressor.gate_proj.weight",
     "L.self_attn.compressor.wgate.weight"},
    {"L.attn.compressor.ape", "L.self_attn.compressor.position_bias", "L.self_attn.compressor.ape"},
    {"L.attn.compressor.norm.weight", "L.self_attn.compressor.kv_norm.weight", "L.self_attn.compressor.norm.weight"},
    {"L.attn.indexer.wq_b.weight", "L.self_attn.compressor.indexer.q_b_proj.weight", "L.self_attn.indexer.wq_b.weight"},
    {"L.attn.indexer.weights_proj.weight", "L.self_attn.compressor.indexer.weights_proj.weight",
     "L.self_attn.indexer.weights_proj.weight"},
    {"L.attn.indexer.weights_proj.weight", "L.self_attn.compressor.indexer.scorer.weights_proj.weight",
     "L.self_attn.indexer.weights_proj.weight"},
    {"L.attn.indexer.compressor.wkv.weight", "L.self_attn.compressor.indexer.kv_proj.weight",
     "L.self_attn.indexer.compressor.wkv.weight"},
    {"L.attn.indexer.compressor.wgate.weight", "L.self_attn.compressor.indexer.gate_proj.weight",
     "L.self_attn.indexer.compressor.wgate.weight"},
    {"L.attn.indexer.compressor.ape", "L.self_attn.compressor.indexer.position_bias",
     "L.self_attn.indexer.compressor.ape"},
    {"L.attn.indexer.compressor.norm.weight", "L.self_attn.compressor.indexer.kv_norm.weight",
     "L.self_attn.indexer.compressor.norm.weight"},
    {"L.ffn.gate.weight", "L.mlp.gate.weight", "L.mlp.gate.weight"},
    {"L.ffn.gate.bias", "L.mlp.gate.e_score_correction_bias", "L.mlp.gate.e_score_correction_bias"},
    {"L.ffn.gate.tid2eid", "L.mlp.gate.tid2eid", "L.mlp.topk.tid2eid"},
    {"L.ffn.shared_experts.w1.weight", "L.mlp.shared_experts.gate_proj.weight",
     "L.mlp.shared_experts.gate_proj.weight"},
    {"L.ffn.shared_experts.w2.weight", "L.mlp.shared_experts.down_proj.weight",
     "L.mlp.shared_experts.down_proj.weight"},
    {"L.ffn.shared_experts.w3.weight", "L.mlp.shared_experts.up_proj.weight", "L.mlp.shared_experts.up_proj.weight"},
    {"L.ffn.experts.17.w1.weight", "L.mlp.experts.17.gate_proj.weight", "L.mlp.experts.17.gate_proj.weight"},
    {"L.ffn.experts.17.w2.weight", "L.mlp.experts.17.down_proj.weight", "L.mlp.experts.17.down_proj.weight"},
    {"L.ffn.experts.17.w3.weight", "L.mlp.experts.17.up_proj.weight", "L.mlp.experts.17.up_proj.weight"},
};

std::string at_layer(std::string name, const std::string& layer) {
  if (name.starts_with("L.")) name.replace(0, 1, layer);
  return name;
}

TEST(Names, EveryRowOfTheTablesBecomesTheNativeName) {
  for (const auto& [native, transformers, engine] : kRows) {
    const Translation wanted{at_layer(native, "layers.12"), Part::value};
    EXPECT_EQ(to_native(at_layer(native, "layers.12")), wanted);
    EXPECT_EQ(to_native(at_layer(transformers, "model.layers.12")), wanted) << transformers;
    EXPECT_EQ(to_native(at_layer(engine, "model.layers.12")), wanted) << engine;
  }
}

TEST(Names, ScalesPairWithTheirWeightsInBothSpellings) {  // case q-06
  const Translation wanted{"layers.0.ffn.experts.0.w1.weight", Part::scales};
  EXPECT_EQ(to_native("layers.0.ffn.experts.0.w1.scale"), wanted);
  EXPECT_EQ(to_native("model.layers.0.mlp.experts.0.gate_proj.weight_scale_inv"), wanted);
  EXPECT_EQ(to_native("mtp.0.e_proj.scale"), (Translation{"mtp.0.e_proj.weight", Part::scales}));
  // A tensor whose own name ends like that of scales.
  EXPECT_EQ(to_native("model.layers.0.attn_hc.scale"), (Translation{"layers.0.hc_attn_scale", Part::value}));
}

TEST(Names, HfStyleNamesAreThoseOfTheTable) {
  for (const auto& [native, transformers, engine] : kRows) {
    EXPECT_EQ(checkpoint::to_hf(at_layer(native, "layers.12")), at_layer(engine, "model.layers.12"));
  }
  EXPECT_EQ(checkpoint::to_hf("layers.3.attn.wq_a.scale"), "model.layers.3.self_attn.wq_a.weight_scale_inv");
  EXPECT_EQ(checkpoint::to_hf("layers.3.ffn.experts.7.w2.scale"),
            "model.layers.3.mlp.experts.7.down_proj.weight_scale_inv");
  EXPECT_EQ(checkpoint::to_hf("mtp.0.ffn.experts.7.w2.scale"), "mtp.0.ffn.experts.7.w2.scale");
}

TEST(Names, HfStyleNamesOfAWholeModelAreDistinctAndLeadBack) {
  const model::Config config =
      model::Config::from_json(base::read_json(test::golden("checkpoint/tiny_v4_config.json")), "tiny_v4");
  std::set<std::string> seen;
  model::Weights::describe(config).visit_named([&](const model::TensorInfo& info, const tensor::Tensor&) {
    const std::string name = checkpoint::to_hf(info.name);
    EXPECT_TRUE(seen.insert(name).second) << name;
    EXPECT_EQ(to_native(name), (Translation{info.name, Part::value}));
    if (!info.is_quantised()) return;
    const std::string scales = checkpoint::to_hf(checkpoint::scale_name(info.name));
    EXPECT_TRUE(seen.insert(scales).second) << scales;
    EXPECT_EQ(to_native(scales), (Translation{info.name, Part::scales}));
  });
}

TEST(Names, FusedExpertsBecomeStacks) {
  EXPECT_EQ(to_native("model.layers.3.mlp.experts.gate_up_proj"),
            (Translation{"layers.3.ffn.experts.{}.w1.weight", Part::gate_up_stack}));
  EXPECT_EQ(to_native("model.layers.3.mlp.experts.down_proj"),
            (Translation{"layers.3.ffn.experts.{}.w2.weight", Part::down_stack}));
}

TEST(Names, MtpHasItsOwnNamesAndCopiesOfEmbedAndHead) {
  EXPECT_EQ(to_native("mtp.0.enorm.weight"), (Translation{"mtp.0.enorm.weight", Part::value}));
  EXPECT_EQ(to_native("mtp.0.ffn.experts.3.w2.weight"), (Translation{"mtp.0.ffn.experts.3.w2.weight", Part::value}));
  EXPECT_EQ(to_native("mtp.0.emb.tok_emb.weight")->part, Part::copy);
  EXPECT_EQ(to_native("mtp.0.head.weight")->part, Part::copy);
  EXPECT_EQ(to_native("layers.0.enorm.weight"), std::nullopt);  // only MTP blocks have it
  EXPECT_EQ(to_native("layers.0.norm.weight"), std::nullopt);
}

TEST(Names, WhatIsNoNameOfThisModelHasNoTranslation) {
  for (const char* name : {"",
                           "model.",
                           "weight",
                           "layers.0.attn.nope.weight",
                           "layers.x.attn.wq_a.weight",
                           "layers.00.attn.wq_a.weight",
                           "layers.-1.attn.wq_a.weight",
                           "layers..attn.wq_a.weight",
                           "layers.0.attn.wq_a",
                           "layers.0.attn.wq_a.bias",
                           "layers.0",
                           "layers.12345678901234567890.attn.wq_a.weight",
                           "xlayers.0.attn.wq_a.weight",
                           "model.model.norm.weight",
                           "layers.0.ffn.experts.w1.weight",
                           "layers.0.ffn.experts.{}.w1.weight",
                           "layers.0.ffn.experts.01.w1.weight",
                           "layers.0.attn.wq_a.weight.weight",
                           "layers.0.attn.q_norm.scale",
                           "layers.0.self_attn.mlp.gate.weight",
                           "embed.weight.scale"}) {
    EXPECT_EQ(to_native(name), std::nullopt) << name;
  }
}

TEST(Names, BothFormsThatTransformersWritesGiveEveryTensorOfTheModelOnce) {
  model::Config config =
      model::Config::from_json(base::read_json(test::golden("checkpoint/tiny_v4_config.json")), "tiny_v4");
  config.num_nextn_predict_layers = 0;  // transformers has no MTP
  std::set<std::string> native;
  model::Weights::describe(config).visit_named(
      [&](const model::TensorInfo& info, const tensor::Tensor&) { native.insert(info.name); });
  const base::Json forms = base::read_json(test::golden("checkpoint/transformers_names.json"));
  for (const char* form : {"save_pretrained", "run_time"}) {
    std::map<std::string, int> seen;
    for (const base::Json& name : forms[form]) {
      const std::optional<Translation> translation = to_native(name.get<std::string>());
      ASSERT_TRUE(translation) << name;
      const size_t stack = translation->native.find("{}");
      if (stack == std::string::npos) {
        ++seen[translation->native];
        continue;
      }
      for (int64_t e = 0; e < config.n_routed_experts; ++e) {
        std::string expert = translation->native;
        expert.replace(stack, 2, std::to_string(e));
        ++seen[expert];
        if (translation->part == Part::gate_up_stack) ++seen[expert.replace(expert.rfind("w1"), 2, "w3")];
      }
    }
    EXPECT_EQ(seen.size(), native.size()) << form;
    for (const std::string& name : native) EXPECT_EQ(seen[name], 1) << form << ": " << name;
  }
}

}  // namespace
