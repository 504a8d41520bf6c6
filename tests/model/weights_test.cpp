// The visitor, initial values, published and run values.
#include "model/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fixture.h"

namespace test {
namespace {

using model::StoredAs;
using model::TensorInfo;
using model::Weights;

model::Config flash() { return model::Config::from_json(base::read_json(model_golden("flash_config.json")), "flash"); }
model::Config small() { return model::Config::load(model_golden("small")); }

// The tensors of the published checkpoint, as name -> "dtype [shape]".
std::map<std::string, std::string> published_inventory() {
  std::map<std::string, std::string> result;
  const base::Json json = base::read_json(model_golden("flash_tensors.json"));
  for (const auto& [name, entry] : json.items()) {
    result[name] = fmt::format("{} {}", entry.at("dtype").get<std::string>(), entry.at("shape").dump());
  }
  return result;
}

TEST(Weights, FlashIsExactlyThePublishedInventory) {
  const Weights weights = Weights::allocate(flash(), at::kMeta);
  std::map<std::string, std::string> inventory;
  int64_t num_tensors = 0;
  weights.visit([&](const TensorInfo& info, const Tensor& tensor) {
    std::vector<int64_t> shape = info.shape;
    if (info.stack > 0) shape.insert(shape.begin(), info.stack);
    EXPECT_EQ(tensor.sizes().vec(), shape) << info.name;
    const std::string name =
        info.stack > 0 ? fmt::format(fmt::runtime(info.name), fmt::format("{{0..{}}}", info.stack - 1)) : info.name;
    const auto add = [&](const std::string& key, const std::string& dtype, const std::vector<int64_t>& size) {
      inventory[key] = fmt::format("{} {}", dtype, base::Json(size).dump());
      num_tensors += std::max<int64_t>(1, info.stack);
    };
    if (!info.is_quantised()) {
      const char* dtype = info.stored_as == StoredAs::f32 ? "F32" : info.stored_as == StoredAs::i64 ? "I64" : "BF16";
      return add(name, dtype, info.shape);
    }
    const bool fp4 = info.stored_as == StoredAs::e2m1_1x32;
    const auto format = fp4 ? tensor::BlockFormat::e2m1 : tensor::BlockFormat::e4m3;
    add(name, fp4 ? "I8" : "F8_E4M3", tensor::code_shape(info.shape, format));
    add(name.substr(0, name.size() - 6) + "scale", "F8_E8M0", tensor::scale_shape(info.shape, format));
  });
  EXPECT_EQ(inventory, published_inventory());
  EXPECT_EQ(num_tensors, 69187);
}

TEST(Weights, EachTensorIsVisitedOnceAndExpertsOnTheirOwnByName) {
  const Weights weights = Weights::initialise(small(), 1);
  std::set<std::string> names;
  int64_t values = 0, values_by_name = 0;
  weights.visit([&](const TensorInfo&, const Tensor& tensor) { values += tensor.numel(); });
  weights.visit_named([&](const TensorInfo& info, const Tensor& tensor) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(tensor.sizes().vec(), info.shape) << info.name;
    EXPECT_EQ(info.name.find('{'), std::string::npos);
    values_by_name += tensor.numel();
  });
  EXPECT_EQ(values, values_by_name);
  EXPECT_TRUE(names.count("layers.1.ffn.experts.4.w2.weight"));
}

TEST(Weights, ADescriptionNamesTheSameTensorsWithoutMemory) {
  std::vector<std::string> described, allocated;
  const Weights description = Weights::describe(small()), weights = Weights::allocate(small(), at::kCPU);
  description.visit_named([&](const TensorInfo& info, const Tensor& tensor) {
    EXPECT_FALSE(tensor.defined());
    described.push_back(info.name);
  });
  weights.visit_named([&](const TensorInfo& info, const Tensor&) { allocated.push_back(info.name); });
  EXPECT_EQ(described, allocated);
}

TEST(Weights, OnlyMatricesDecayAndTheGateTheHashTableAndTheIndexerDoNotLearn) {
  const Weights weights = Weights::describe(small());
  weights.visit([](const TensorInfo& info, const Tensor&) {
    const auto has = [&](const char* part) { return info.name.find(part) != std::string::npos; };
    EXPECT_EQ(info.learns, !(has(".gate.") || has(".indexer."))) << info.name;
    const bool matrix = info.shape.size() == 2 && !has("hc_") && !has(".ape");
    EXPECT_EQ(info.decays, info.learns && matrix) << info.name;
  });
}

TEST(Weights, InitialValuesRepeatAndDependOnSeedAndNameAlone) {
  const Weights one = Weights::initialise(small(), 7), same = Weights::initialise(small(), 7),
                other = Weights::initialise(small(), 8);
  model::Config longer_config = small();
  longer_config.num_hidden_layers = 6;
  longer_config.layer_types.push_back(model::LayerKind::csa);
  longer_config.hash_layers.push_back(false);
  const Weights longer = Weights::initialise(longer_config, 7);
  std::map<std::string, Tensor> values;
  one.visit([&](const TensorInfo& info, const Tensor& tensor) { values[info.name] = tensor; });
  same.visit([&](const TensorInfo& info, const Tensor& tensor) {
    EXPECT_TRUE(at::equal(tensor, values.at(info.name))) << info.name;
  });
  longer.visit([&](const TensorInfo& info, const Tensor& tensor) {
    if (values.count(info.name)) {
      EXPECT_TRUE(at::equal(tensor, values.at(info.name))) << info.name;
    }
  });
  EXPECT_FALSE(at::equal(one.embed, other.embed));
  EXPECT_FALSE(at::equal(one.layers[1].attn.wq_a, one.layers[2].attn.wq_a));
}

TEST(Weights, InitialValuesHaveTheirDistribution) {
  const model::Config config = small();
  const Weights weights = Weights::initialise(config, 3);
  weights.visit([&](const TensorInfo& info, const Tensor& tensor) {
    EXPECT_TRUE(at::isfinite(tensor).all().item<bool>()) << info.name;
    if (tensor.numel() < 2000 || info.stored_as == StoredAs::i64) return;
    const double count = static_cast<double>(tensor.numel()), std = config.initializer_range;
    EXPECT_LE(std::abs(tensor.mean().item<double>()), 5 * std / std::sqrt(count)) << info.name;
    EXPECT_NEAR(tensor.std().item<double>(), std, 5 * std / std::sqrt(2 * count)) << info.name;
  });
  EXPECT_TRUE(at::equal(weights.norm, at::ones_like(weights.norm)));
  EXPECT_TRUE(at::equal(weights.layers[0].attn.attn_sink, at::zeros_like(weights.layers[0].attn.attn_sink)));
}

TEST(Weights, HashTablesHaveDistinctExpertsInEveryRow) {
  const model::Config config = small();
  const Weights weights = Weights::initialise(config, 4);
  const Tensor table = std::get<0>(weights.layers[0].ffn.tid2eid.sort(1));
  EXPECT_EQ(table.sizes().vec(), (std::vector<int64_t>{config.vocab_size, config.num_experts_per_tok}));
  EXPECT_TRUE((table.diff(1, 1) > 0).all().item<bool>());
  EXPECT_TRUE(((table >= 0) & (table < config.n_routed_experts)).all().item<bool>());
  const Tensor uses = at::bincount(table.flatten(), {}, config.n_routed_experts);
  EXPECT_GT(uses.min().item<int64_t>(), table.numel() / config.n_routed_experts / 2);
}

TEST(Weights, PublishedValuesAreBf16ExceptWhatIsStoredF32) {
  const Weights weights = Weights::initialise(small(), 5);
  weights.visit([](const TensorInfo& info, const Tensor& master) {
    const auto has = [&](const char* part) { return info.name.find(part) != std::string::npos; };
    const bool f32 = has("hc_") || has("attn_sink") || has(".ape") || has("gate.bias");
    const at::ScalarType wanted = has("tid2eid") ? at::kLong : f32 ? at::kFloat : at::kBFloat16;
    EXPECT_EQ(model::published_value(info, master).scalar_type(), wanted) << info.name;
  });
}

TEST(RunWeights, NeverShareMemoryWithTheMasters) {
  const Weights masters = Weights::initialise(small(), 6);
  std::set<const void*> storage;
  masters.visit([&](const TensorInfo&, const Tensor& tensor) { storage.insert(tensor.storage().data()); });
  for (const char* profile : {"f32", "bf16", "fp8"}) {
    model::RunWeights run = model::RunWeights::trainable(masters, model::Profile::parse(profile));
    run.visit_leaves([&](const TensorInfo& info, Tensor& leaf) {
      EXPECT_EQ(storage.count(leaf.storage().data()), 0u) << info.name;
      EXPECT_EQ(leaf.scalar_type(), info.stored_as == StoredAs::i64 ? at::kLong : at::kFloat) << info.name;
    });
  }
}

TEST(RunWeights, AreTheMastersInF32AndQuantisedFromThePublishedValuesInFp8) {
  const Weights masters = Weights::initialise(small(), 6);
  const auto of = [&](const char* profile) {
    return values_of(model::RunWeights::frozen(masters, model::Profile::parse(profile)));
  };
  const auto exact = of("f32"), quantised = of("fp8_fp4");
  masters.visit([&](const TensorInfo& info, const Tensor& master) {
    EXPECT_TRUE(at::equal(exact.at(info.name), master)) << info.name;
  });
  const auto through = [](const Tensor& master, tensor::BlockFormat format) {
    return tensor::dequantise_blocks(tensor::quantise_blocks(master.to(at::kBFloat16), format));
  };
  const auto& layer = masters.layers[1];
  EXPECT_TRUE(at::equal(quantised.at("layers.1.ffn.experts.{}.w2.weight")[3],
                        through(layer.ffn.w2[3], tensor::BlockFormat::e2m1)));
  EXPECT_TRUE(at::equal(quantised.at("layers.1.ffn.shared_experts.w1.weight"),
                        through(layer.ffn.shared_w1, tensor::BlockFormat::e4m3)));
  EXPECT_TRUE(
      at::equal(quantised.at("layers.1.attn.wo_a.weight"), through(layer.attn.wo_a, tensor::BlockFormat::e4m3)));
  EXPECT_TRUE(at::equal(quantised.at("mtp.0.e_proj.weight"), through(masters.mtp->e_proj, tensor::BlockFormat::e4m3)));
  EXPECT_TRUE(at::equal(quantised.at("layers.1.attn.compressor.wkv.weight"),
                        layer.attn.compressor->wkv.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(at::equal(quantised.at("layers.1.hc_attn_fn"), layer.hc_attn.fn));
}

TEST(RunWeights, AnEnginesAndAnActorsHoldTheSameValues) {
  const Weights masters = Weights::initialise(small(), 7);
  for (const char* name : {"f32", "bf16", "fp8", "fp8_fp4"}) {
    const model::Profile profile = model::Profile::parse(name);
    const auto engine = values_of(model::RunWeights::frozen(masters, profile));
    for (const auto& [tensor, value] : values_of(model::RunWeights::trainable(masters, profile)))
      EXPECT_TRUE(at::equal(value, engine.at(tensor))) << name << " " << tensor;
  }
}

TEST(Weights, AClonesValuesAreItsOwn) {
  const Weights weights = Weights::initialise(small(), 6);
  Weights copy = weights.clone();
  copy.embed.zero_();
  EXPECT_FALSE(at::equal(copy.embed, weights.embed));
}

TEST(Weights, CompressorNormsAreRoundedUnlessTheyAreStoredF32) {
  model::Config config = small();
  const auto norm_of = [&](std::optional<bool> f32) {
    config.compressor_norm_f32 = f32;
    Weights weights = Weights::allocate(config, at::kCPU);
    weights.visit([](const TensorInfo&, Tensor& tensor) { tensor.fill_(1.001); });  // lies between two bf16 values
    return model::RunWeights::frozen(weights, model::Profile::parse("bf16"))
        .layers[1]
        .attn.compressor->norm[0]
        .item<float>();
  };
  EXPECT_EQ(norm_of(std::nullopt), 1.f);
  EXPECT_EQ(norm_of(false), 1.f);
  EXPECT_EQ(norm_of(true), 1.001f);
}

}  // namespace
}  // namespace test
