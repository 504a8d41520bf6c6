// Weights through files: every dialect and dtype in, every form out, and one clear error for what does not fit.
#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "checkpoint/folders.h"
#include "checkpoint/load.h"
#include "checkpoint/names.h"
#include "checkpoint/save.h"
#include "checkpoint/temporary_folder.h"
#include "model/run_weights.h"

namespace {

namespace fs = std::filesystem;
using base::Code;
using checkpoint::load_weights;
using checkpoint::save_weights;
using checkpoint::SaveAs;
using model::TensorInfo;
using model::Weights;
using tensor::BlockFormat;
using tensor::Tensor;
using test::as_published;
using test::expect_equal;
using test::native_tensors;
using test::Stored;
using test::TemporaryFolder;
using test::unchanged;
using test::write_folder;

TEST(LoadSave, F32BringsBackEveryMasterToTheBit) {
  const TemporaryFolder folder;
  const Weights weights = test::tiny_weights();
  save_weights(folder / "x", weights, SaveAs::f32);
  expect_equal(load_weights(folder / "x"), weights, unchanged);
  EXPECT_FALSE(fs::exists(folder / "x.tmp"));
}

TEST(LoadSave, Bf16BringsBackThePublishedValues) {
  const TemporaryFolder folder;
  const Weights weights = test::tiny_weights();
  save_weights(folder / "x", weights, SaveAs::bf16);
  expect_equal(load_weights(folder / "x"), weights, as_published);
}

TEST(LoadSave, ShardsBringBackTheSame) {
  const TemporaryFolder folder;
  const Weights weights = test::tiny_weights();
  save_weights(folder / "x", weights, SaveAs::f32, 100'000);
  EXPECT_TRUE(fs::exists(folder / "x/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(folder / "x/model.safetensors"));
  expect_equal(load_weights(folder / "x"), weights, unchanged);
}

TEST(LoadSave, ThePublishedLayoutIsDequantisedExactly) {
  for (const char* expert_dtype : {"fp4", "fp8"}) {
    const TemporaryFolder folder;
    Weights weights = test::tiny_weights();
    weights.config.expert_dtype = expert_dtype;
    save_weights(folder / "x", weights, SaveAs::published);
    const model::Profile profile = model::Profile::parse(std::string(expert_dtype) == "fp4" ? "fp8_fp4" : "fp8");
    expect_equal(load_weights(folder / "x"), weights, [&](const TensorInfo& info, const Tensor& value) {
      return model::run_value(info, model::published_value(info, value), profile);
    });
  }
}

TEST(LoadSave, RealScalesAndTheirOtherSpelling) {  // spec 6.4
  const TemporaryFolder folder;
  const Weights weights = test::tiny_weights();
  const Stored stored = test::with_real_scales(weights);
  write_folder(folder / "x", stored);
  expect_equal(load_weights(folder / "x"), weights, [&](const TensorInfo& info, const Tensor& value) {
    if (!info.is_quantised()) return value;
    return tensor::dequantise_blocks(
        {stored.at(info.name).view(at::kByte), stored.at(info.name + "_scale_inv"), BlockFormat::e4m3});
  });
}

TEST(LoadSave, HalfPrecisionAndInt32TablesAreWidened) {
  const TemporaryFolder folder;
  const Weights weights = test::tiny_weights();
  write_folder(folder / "x", test::in_half_precision(weights));
  expect_equal(load_weights(folder / "x"), weights, [](const TensorInfo& info, const Tensor& value) {
    return info.stored_as == model::StoredAs::i64 ? value : value.to(at::kHalf).to(at::kFloat);
  });
}

TEST(LoadSave, EngineNamesLoad) {
  const TemporaryFolder folder;
  const Weights weights = test::tiny_weights();
  Stored tensors;
  for (const auto& [name, value] : native_tensors(weights)) tensors[checkpoint::to_hf(name)] = value;
  write_folder(folder / "x", tensors);
  expect_equal(load_weights(folder / "x"), weights, unchanged);
}

TEST(LoadSave, FusedExpertsLoad) {
  const TemporaryFolder folder;
  const Weights weights = test::tiny_weights();
  write_folder(folder / "x", test::with_stacks(weights));
  expect_equal(load_weights(folder / "x"), weights, unchanged);
}

TEST(LoadSave, ACheckpointWithoutMtpLoadsWithoutIt) {
  const TemporaryFolder folder;
  Weights weights = test::tiny_weights();
  Stored tensors = native_tensors(weights);
  std::erase_if(tensors, [](const auto& entry) { return entry.first.starts_with("mtp."); });
  write_folder(folder / "x", tensors);
  const Weights loaded = load_weights(folder / "x");
  EXPECT_FALSE(loaded.mtp);
  EXPECT_EQ(loaded.config.num_nextn_predict_layers, 0);
  weights.mtp.reset();
  expect_equal(loaded, weights, unchanged);
  save_weights(folder / "y", loaded, SaveAs::f32);
  EXPECT_EQ(load_weights(folder / "y").config.num_nextn_predict_layers, 0);
}

// A whole checkpoint with one thing changed must be refused with these words.
void expect_refused(Code code, const std::vector<std::string>& parts, const std::function<void(Stored&)>& change,
                    const base::Json& config = test::tiny_config_json()) {
  const TemporaryFolder folder;
  Stored tensors = native_tensors(test::tiny_weights());
  change(tensors);
  write_folder(folder / "x", tensors, config);
  test::expect_error(code, parts, [&] { load_weights(folder / "x"); });
}

TEST(LoadSave, EverythingThatDoesNotFitIsListedAtOnce) {
  expect_refused(Code::invalid_argument,
                 {"2 missing", "head.weight", "layers.2.attn.wq_a.weight", "1 unexpected: layers.0.attn.nope.weight",
                  "1 of another form", "norm.weight", "F32 [63]", "[64]"},
                 [](Stored& tensors) {
                   tensors.erase("head.weight");  // index/untied_lm_head_absent: never initialised at random
                   tensors.erase("layers.2.attn.wq_a.weight");
                   tensors["layers.0.attn.nope.weight"] = at::zeros({1});
                   tensors["norm.weight"] = at::zeros({63});
                 });
}

TEST(LoadSave, AConfigOfAnotherModelIsRefusedBeforeMemoryIsTaken) {
  base::Json config = test::tiny_config_json();
  config["hidden_size"] = 1 << 24;  // would be terabytes
  config["vocab_size"] = 1 << 24;
  expect_refused(
      Code::invalid_argument, {"embed.weight", "[40, 64]", "[16777216, 16777216]"}, [](Stored&) {}, config);
}

TEST(LoadSave, ALayerTooManyIsUnexpected) {
  expect_refused(Code::invalid_argument, {"1 unexpected: layers.4.attn_norm.weight"},
                 [](Stored& tensors) { tensors["layers.4.attn_norm.weight"] = at::ones({64}); });
  expect_refused(Code::invalid_argument, {"1 unexpected: layers.0.ffn.experts.5.w1.weight"}, [](Stored& tensors) {
    tensors["layers.0.ffn.experts.5.w1.weight"] = at::ones({136, 64});
  });
}

TEST(LoadSave, ANameInTwoDialectsIsRefused) {
  expect_refused(Code::invalid_argument, {"1 there twice", "head.weight", "lm_head.weight"},
                 [](Stored& tensors) { tensors["lm_head.weight"] = tensors["head.weight"]; });
  expect_refused(Code::invalid_argument, {"layers.0.ffn.experts.0.w2.weight is there alone and in"},
                 [](Stored& tensors) {
                   tensors["model.layers.0.mlp.experts.down_proj"] = at::ones({5, 64, 136});
                 });
}

TEST(LoadSave, StacksOfTheWrongShapeAreRefused) {
  const auto without_experts = [](Stored& tensors) {
    std::erase_if(tensors, [](const auto& entry) {
      return entry.first.starts_with("layers.0.ffn.experts.") && entry.first.ends_with("w2.weight");
    });
  };
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{4, 64, 136}, {6, 64, 136}, {5, 136, 64}, {64, 136}, {}}) {
    expect_refused(Code::invalid_argument, {"model.layers.0.mlp.experts.down_proj"}, [&](Stored& tensors) {
      without_experts(tensors);
      tensors["model.layers.0.mlp.experts.down_proj"] = at::ones(shape);
    });
  }
}

TEST(LoadSave, ScalesWithoutWeightAndWeightWithoutScalesAreNamed) {
  expect_refused(Code::invalid_argument, {"1 missing: layers.0.attn.wq_a.weight", "its scales are there"},
                 [](Stored& tensors) {
                   tensors.erase("layers.0.attn.wq_a.weight");  // index/scale_without_weight
                   tensors["layers.0.attn.wq_a.scale"] = at::ones({1, 1});
                 });
  expect_refused(Code::invalid_argument, {"layers.0.attn.wq_a.weight", "has no scales"}, [](Stored& tensors) {
    tensors["layers.0.attn.wq_a.weight"] = tensors["layers.0.attn.wq_a.weight"].to(at::kFloat8_e4m3fn);
  });
  expect_refused(Code::invalid_argument, {"layers.0.attn.wq_a.weight", "but has scales"}, [](Stored& tensors) {
    tensors["layers.0.attn.wq_a.scale"] = at::ones({1, 1});
  });
}

TEST(LoadSave, CodesAndScalesOfTheWrongShapeAreNamedWithTheNumbers) {  // case q-11
  const auto packed = [](const std::vector<int64_t>& codes, const std::vector<int64_t>& scales) {
    return [=](Stored& tensors) {
      tensors["layers.0.attn.wq_a.weight"] = at::zeros(codes, at::kChar);  // [48, 64]
      tensors["layers.0.attn.wq_a.scale"] = at::ones(scales);
    };
  };
  expect_refused(Code::invalid_argument, {"layers.0.attn.wq_a.weight", "I8 [48, 31]", "[48, 32]"},
                 packed({48, 31}, {48, 2}));
  expect_refused(Code::invalid_argument, {"layers.0.attn.wq_a.weight", "F32 [48, 3]", "[48, 2]"},
                 packed({48, 32}, {48, 3}));
  expect_refused(Code::invalid_argument, {"norm.weight", "for matrices"},
                 [](Stored& tensors) { tensors["norm.weight"] = at::zeros({64}, at::kChar); });
  expect_refused(Code::invalid_argument, {"norm.weight", "F64"},
                 [](Stored& tensors) { tensors["norm.weight"] = at::zeros({64}, at::kDouble); });
}

TEST(LoadSave, NanCodesAndNanScalesAreNamed) {
  const auto fp8 = [](int code, int scale) {
    return [=](Stored& tensors) {
      Tensor codes = at::zeros({48, 64}, at::kByte);
      codes[3][4] = code;
      tensors["layers.0.attn.wq_a.weight"] = codes.view(at::kFloat8_e4m3fn);
      tensors["layers.0.attn.wq_a.scale"] = at::full({1, 1}, scale, at::kByte).view(at::kFloat8_e8m0fnu);
    };
  };
  expect_refused(Code::corruption, {"layers.0.attn.wq_a.weight", "NaN"}, fp8(0x7f, 127));
  expect_refused(Code::corruption, {"layers.0.attn.wq_a.weight", "NaN"}, fp8(0x10, 255));
  expect_refused(Code::corruption, {"layers.0.attn.wq_a.weight", "infinity"}, fp8(0x7e, 254));
  expect_refused(Code::corruption, {"model.safetensors", "embed.weight", "NaN"}, [](Stored& tensors) {
    tensors["embed.weight"] = at::full({40, 64}, std::nanf(""));
  });
}

TEST(LoadSave, HashTablesMustNameDifferentExpertsThatExist) {
  const auto row = [](int64_t first, int64_t second) {
    return [=](Stored& tensors) {
      Tensor& table = tensors["layers.1.ffn.gate.tid2eid"] = tensors["layers.1.ffn.gate.tid2eid"].clone();
      table[7][0] = first;
      table[7][1] = second;
    };
  };
  expect_refused(Code::corruption, {"layers.1.ffn.gate.tid2eid", "token 7", "[3, 3]"}, row(3, 3));
  expect_refused(Code::corruption, {"token 7", "[0, 5]", "0 to 4"}, row(0, 5));
  expect_refused(Code::corruption, {"token 7", "[-1, 2]"}, row(-1, 2));
}

TEST(LoadSave, ASaveNeverOverwritesAndAnInterruptedOneIsReplaced) {
  const TemporaryFolder folder;
  const Weights weights = test::tiny_weights();
  fs::create_directories(folder / "x.tmp");
  base::write_file_atomic(folder / "x.tmp/model.safetensors", "half a file");
  save_weights(folder / "x", weights, SaveAs::bf16);
  test::expect_error(Code::invalid_argument, {"x", "there already"},
                     [&] { save_weights(folder / "x", weights, SaveAs::bf16); });
  expect_equal(load_weights(folder / "x"), weights, as_published);
  EXPECT_NO_THROW(save_weights(folder / "new/parents/y/", weights, SaveAs::bf16));  // case ck-16
  EXPECT_TRUE(fs::exists(folder / "new/parents/y/config.json"));
}

TEST(LoadSave, AMissingShardIsNamed) {  // case ck-05
  const TemporaryFolder folder;
  save_weights(folder / "x", test::tiny_weights(), SaveAs::bf16, 200'000);
  fs::path shard;
  for (const auto& entry : fs::directory_iterator(folder / "x")) {
    if (entry.path().filename().string().starts_with("model-00002-of")) shard = entry.path();
  }
  ASSERT_FALSE(shard.empty());
  fs::remove(shard);
  test::expect_error(Code::not_found, {shard.filename().string()}, [&] { load_weights(folder / "x"); });
}

}  // namespace
