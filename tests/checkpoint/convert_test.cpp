// Model folders in other forms: every layout in, every layout out, values, bytes, names and files; and what is refused.
#include "checkpoint/convert.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/expect_error.h"
#include "checkpoint/folders.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "checkpoint/temporary_folder.h"
#include "model/run_weights.h"
#include "tensor/formats/e2m1.h"

namespace {

namespace fs = std::filesystem;
using base::Code;
using checkpoint::Converted;
using checkpoint::ConvertOptions;
using checkpoint::load_weights;
using checkpoint::Names;
using checkpoint::save_weights;
using checkpoint::SaveAs;
using model::TensorInfo;
using model::Weights;
using tensor::BlockFormat;
using tensor::Tensor;
using test::Stored;
using test::TemporaryFolder;

constexpr const char* kForms[] = {"f32", "bf16", "fp8", "fp8_fp4"};

Converted convert(const fs::path& in, const fs::path& out, const ConvertOptions& options) {
  return checkpoint::convert(in, out, options, [](const checkpoint::ConvertProgress&) { return true; });
}

// The tiny model, saved in one of the forms by the saver.
void save_in(const fs::path& folder, const std::string& form) {
  Weights weights = test::tiny_weights();
  if (form == "fp8") weights.config.expert_dtype = "fp8";
  save_weights(folder, weights, form == "f32" ? SaveAs::f32 : form == "bf16" ? SaveAs::bf16 : SaveAs::published);
}

// What a form makes of a value (decisions 4). A form that holds the value already does not change it (spec 6.5).
Tensor in_form(const std::string& form, const TensorInfo& info, const Tensor& value) {
  const model::Profile profile = model::Profile::parse(form);
  return model::run_value(info, profile.round_bf16 ? model::published_value(info, value) : value, profile);
}

Stored files_of(const fs::path& folder) {
  const tensor::SafetensorsFolder files(folder);
  Stored tensors;
  for (const std::string& name : files.names()) tensors[name] = files.read(name);
  return tensors;
}

TEST(Convert, EveryFormBecomesEveryOther) {
  const TemporaryFolder folder;
  for (const std::string from : kForms) {
    save_in(folder / from, from);
    const Weights before = load_weights(folder / from);
    for (const std::string to : kForms) {
      SCOPED_TRACE(from + " to " + to);
      const fs::path out = folder / (from + "_" + to);
      const Converted done = convert(folder / from, out, {.to = to});
      EXPECT_TRUE(done.complete);
      EXPECT_FALSE(fs::exists(done.unfinished));
      EXPECT_FALSE(fs::exists(out / "convert_state.json"));
      test::expect_equal(load_weights(out), before,
                         [&](const TensorInfo& info, const Tensor& value) { return in_form(to, info, value); });
    }
  }
}

TEST(Convert, ThereAndBackKeepsEveryValueWhereTheFormsAllowIt) {
  const TemporaryFolder folder;
  save_in(folder / "fp8_fp4", "fp8_fp4");
  const Weights before = load_weights(folder / "fp8_fp4");
  fs::path last = folder / "fp8_fp4";
  for (const std::string to : {"f32", "fp8_fp4", "bf16", "fp8", "bf16", "fp8_fp4"}) {
    const fs::path out = last.string() + "_" + to;
    const Converted done = convert(last, out, {.to = to});
    test::expect_equal(load_weights(out), before, test::unchanged);
    EXPECT_EQ(done.verified.rounded.relative_error, 0);
    EXPECT_EQ(done.verified.quantised.relative_error, 0);
    last = out;
  }
}

TEST(Convert, TheTensorsAreTheOnesThatTheSaverWrites) {
  const TemporaryFolder folder;
  save_in(folder / "bf16", "bf16");  // an f32 folder says that compressor norms are f32, and conversion keeps them
  for (const std::string to : {"fp8", "fp8_fp4"}) {
    save_in(folder / to, to);
    convert(folder / "bf16", folder / ("made_" + to), {.to = to});
    const Stored saved = files_of(folder / to), made = files_of(folder / ("made_" + to));
    ASSERT_EQ(saved.size(), made.size()) << to;
    for (const auto& [name, value] : saved) {
      ASSERT_TRUE(made.contains(name)) << to << ": " << name;
      const Tensor& converted = made.at(name);
      ASSERT_EQ(converted.dtype(), value.dtype()) << to << ": " << name;
      ASSERT_EQ(converted.sizes(), value.sizes()) << to << ": " << name;
      EXPECT_EQ(std::memcmp(converted.const_data_ptr(), value.const_data_ptr(), value.nbytes()), 0)
          << to << ": " << name;
    }
  }
}

// Every layout that the loader reads, against what the loader makes of it.
TEST(Convert, EveryLayoutThatIsReadIsConverted) {
  const Weights weights = test::tiny_weights();
  Stored hf;
  for (const auto& [name, value] : test::native_tensors(weights)) hf[checkpoint::to_hf(name)] = value;
  const std::map<std::string, Stored> layouts = {{"stacks", test::with_stacks(weights)},
                                                 {"half", test::in_half_precision(weights)},
                                                 {"real_scales", test::with_real_scales(weights)},
                                                 {"hf", hf}};
  for (const auto& [name, stored] : layouts) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::write_folder(folder / "in", stored);
    const Weights before = load_weights(folder / "in");
    for (const std::string to : {"f32", "bf16", "fp8_fp4"}) {
      convert(folder / "in", folder / to, {.to = to, .names = Names::hf, .shard_bytes = 30'000});
      test::expect_equal(load_weights(folder / to), before, [&](const TensorInfo& info, const Tensor& value) {
        const bool kept = name == "real_scales" && to == "fp8_fp4" && info.stored_as == model::StoredAs::e4m3_128x128;
        return kept ? value : in_form(to, info, value);
      });
    }
  }
}

TEST(Convert, WeightsInTheWantedFormatKeepTheirBytes) {
  const TemporaryFolder folder;
  save_in(folder / "in", "fp8_fp4");
  const Converted done = convert(folder / "in", folder / "out", {.to = "fp8_fp4", .names = Names::hf});
  EXPECT_EQ(done.requantised, 0);
  EXPECT_EQ(done.verified.equal.tensors, static_cast<int64_t>(test::native_tensors(test::tiny_weights()).size()));
  const Stored before = files_of(folder / "in"), after = files_of(folder / "out");
  EXPECT_EQ(before.size(), after.size());
  for (const auto& [name, value] : before) {
    ASSERT_TRUE(after.contains(checkpoint::to_hf(name))) << name;
    EXPECT_TRUE(test::same_bits(after.at(checkpoint::to_hf(name)), value)) << name;
  }
}

TEST(Convert, RealScalesStayWithTheirCodesAndTheConfigSaysSo) {  // spec 6.4: Base checkpoints
  const TemporaryFolder folder;
  test::write_folder(folder / "in", test::with_real_scales(test::tiny_weights()));
  convert(folder / "in", folder / "out", {.to = "fp8"});
  const Stored before = files_of(folder / "in"), after = files_of(folder / "out");
  EXPECT_TRUE(test::same_bits(after.at("layers.0.attn.wq_a.weight"), before.at("layers.0.attn.wq_a.weight")));
  EXPECT_TRUE(test::same_bits(after.at("layers.0.attn.wq_a.scale"), before.at("layers.0.attn.wq_a.weight_scale_inv")));
  const base::Json config = base::read_json(folder / "out/config.json");
  EXPECT_FALSE(config["quantization_config"].contains("scale_fmt"));
  EXPECT_EQ(config["expert_dtype"], "fp8");
}

// [136, 64] codes: every value 6 at scale 2^0 but for one group of 32, whose smallest values are 0.5 at 2^-exponent.
Stored with_far_scales(int exponent) {
  Stored tensors = test::native_tensors(test::tiny_weights());
  const Tensor codes = at::full({136, 32}, 0x77, at::kByte);
  codes[5].slice(0, 0, 16).fill_(0x11);
  const Tensor scales = at::full({136, 2}, 127, at::kByte);
  scales[5][0] = 127 - exponent;
  tensors["layers.2.ffn.experts.3.w1.weight"] = codes.view(at::kChar);
  tensors["layers.2.ffn.experts.3.w1.scale"] = scales.view(at::kFloat8_e8m0fnu);
  return tensors;
}

TEST(Convert, E2m1BecomesE4m3ExactlyUpToScalesOfTwoToTheFourteenthApart) {  // spec 6.4
  const TemporaryFolder folder;
  test::write_folder(folder / "near", with_far_scales(14));
  test::write_folder(folder / "far", with_far_scales(15));
  convert(folder / "near", folder / "out", {.to = "fp8"});
  test::expect_equal(load_weights(folder / "out"), load_weights(folder / "near"),
                     [](const TensorInfo& info, const Tensor& value) { return in_form("fp8", info, value); });
  test::expect_error(Code::invalid_argument,
                     {"far/model.safetensors", "layers.2.ffn.experts.3.w1.weight", "rows 0 to 135", "bf16"},
                     [&] { convert(folder / "far", folder / "none", {.to = "fp8"}); });
  EXPECT_FALSE(fs::exists(folder / "none"));
  EXPECT_TRUE(convert(folder / "far", folder / "bf16", {.to = "bf16"}).complete);  // what the message advises
}

// Spec 6.4's own rule for the scale, s = max(scale32) / 2^6, gives the same values as ours.
TEST(Convert, E2m1BecomesTheValuesOfTheOfficialRepacking) {
  const TemporaryFolder folder;
  save_in(folder / "in", "fp8_fp4");
  convert(folder / "in", folder / "out", {.to = "fp8"});
  const Stored before = files_of(folder / "in"), after = files_of(folder / "out");
  const std::string name = "layers.2.ffn.experts.3.w2.";  // [64, 136]
  const Tensor values = tensor::e2m1_values(tensor::e2m1_unpack(before.at(name + "weight").view(at::kByte)));
  const Tensor scales = before.at(name + "scale").to(at::kFloat);
  const Tensor spread = scales.repeat_interleave(32, 1).slice(1, 0, 136);
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 128}, {128, 136}}) {
    const Tensor block_scale = scales.slice(1, first / 32, (last + 31) / 32).max() / 64;
    const Tensor repacked = (values * spread / block_scale).slice(1, first, last).to(at::kFloat8_e4m3fn).to(at::kFloat);
    const Tensor ours = after.at(name + "weight").to(at::kFloat).slice(1, first, last) *
                        after.at(name + "scale").to(at::kFloat)[0][first / 128];
    EXPECT_TRUE(at::equal(repacked * block_scale, ours));
  }
}

TEST(Convert, FilesKeepTheLimitAndTheIndexNamesEveryTensor) {
  const TemporaryFolder folder;
  save_in(folder / "in", "bf16");
  constexpr int64_t kLimit = 20'000;
  const Converted done = convert(folder / "in", folder / "out", {.to = "fp8_fp4", .shard_bytes = kLimit});
  size_t num_files = 0;
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder / "out")) {
    if (entry.path().extension() != ".safetensors") continue;
    const tensor::SafetensorsFile file(entry.path());
    int64_t size = 0;
    for (const tensor::StoredTensor& stored : file.tensors()) size += stored.size_bytes();
    EXPECT_TRUE(size <= kLimit || file.tensors().size() == 1) << entry.path();
    bytes += size;
    ++num_files;
  }
  EXPECT_EQ(num_files, done.num_files);
  EXPECT_GT(num_files, 5u);
  EXPECT_EQ(bytes, done.bytes);
  EXPECT_EQ(base::read_json(folder / "out/model.safetensors.index.json")["metadata"]["total_size"], bytes);
  convert(folder / "in", folder / "whole", {.to = "fp8_fp4"});
  const Stored cut = files_of(folder / "out"), whole = files_of(folder / "whole");
  ASSERT_EQ(cut.size(), whole.size());
  for (const auto& [name, value] : whole) EXPECT_TRUE(test::same_bits(cut.at(name), value)) << name;
}

TEST(Convert, ConfigAndCompanionsGoAlong) {
  const TemporaryFolder folder;
  base::Json config = test::tiny_config_json();
  config["topk_method"] = "noaux_tc";  // a field that Furlong does not read
  config["quantization_config"] = {{"quant_method", "another"}};
  config["torch_dtype"] = "float16";
  test::write_folder(folder / "in", test::native_tensors(test::tiny_weights()), config);
  for (const char* name : {"tokenizer.json", "generation_config.json", "chat_template.jinja", "LICENSE", "model.bin",
                           ".hidden.json", "old.safetensors.index.json"})
    base::write_file_atomic(folder / "in" / name, name);
  fs::create_directories(folder / "in/inference");
  convert(folder / "in", folder / "out", {.to = "fp8"});
  for (const char* name : {"tokenizer.json", "generation_config.json", "chat_template.jinja", "LICENSE"})
    EXPECT_EQ(base::read_file(folder / "out" / name), name);
  for (const char* name : {"model.bin", ".hidden.json", "old.safetensors.index.json", "inference"})
    EXPECT_FALSE(fs::exists(folder / "out" / name)) << name;
  base::Json made = base::read_json(folder / "out/config.json");
  EXPECT_EQ(made["topk_method"], "noaux_tc");
  EXPECT_EQ(made["torch_dtype"], "bfloat16");
  EXPECT_EQ(made["expert_dtype"], "fp8");
  EXPECT_EQ(made["quantization_config"]["quant_method"], "fp8");
  EXPECT_EQ(made["quantization_config"]["scale_fmt"], "ue8m0");
  convert(folder / "out", folder / "f32", {.to = "f32"});
  made = base::read_json(folder / "f32/config.json");
  EXPECT_EQ(made["torch_dtype"], "float32");
  EXPECT_FALSE(made.contains("quantization_config"));
}

// f32 files say nothing about how a norm is published; the config does.
TEST(Convert, TheDtypeOfCompressorNormsAndAMissingMtpBlockAreRemembered) {
  const TemporaryFolder folder;
  Weights weights = test::tiny_weights();
  weights.mtp.reset();
  Stored tensors = test::native_tensors(weights);
  for (auto& [name, value] : tensors)
    if (name.ends_with("norm.weight")) value = value.to(at::kBFloat16);
  test::write_folder(folder / "in", tensors);
  convert(folder / "in", folder / "f32", {.to = "f32"});
  const model::Config config = load_weights(folder / "f32").config;
  EXPECT_EQ(config.compressor_norm_f32, false);
  EXPECT_EQ(config.num_nextn_predict_layers, 0);
}

TEST(Convert, NothingIsOverwritten) {
  const TemporaryFolder folder;
  save_in(folder / "in", "bf16");
  save_in(folder / "out", "bf16");
  test::expect_error(Code::invalid_argument, {"out", "there already"},
                     [&] { convert(folder / "in", folder / "out", {}); });
  test::expect_error(Code::invalid_argument, {"in", "there already"},
                     [&] { convert(folder / "in", folder / "in", {}); });
  EXPECT_FALSE(fs::exists(folder / "out.partial"));
}

// One value of one tensor changed: the error names these, and no folder appears.
void expect_refused(Code code, const std::vector<std::string>& parts, const std::string& to,
                    const std::function<void(Stored&)>& change) {
  const TemporaryFolder folder;
  Stored tensors = test::native_tensors(test::tiny_weights());
  for (auto& [name, value] : tensors) value = value.clone();
  change(tensors);
  test::write_folder(folder / "in", tensors);
  test::expect_error(code, parts, [&] { convert(folder / "in", folder / "out", {.to = to}); });
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Convert, ValuesThatNoFormHoldsAreNamed) {
  expect_refused(Code::corruption, {"model.safetensors", "layers.1.attn.wkv.weight", "NaN"}, "bf16",
                 [](Stored& tensors) { tensors["layers.1.attn.wkv.weight"][3][5] = std::nanf(""); });
  expect_refused(Code::corruption, {"embed.weight", "beyond the range of BF16"}, "bf16",
                 [](Stored& tensors) { tensors["embed.weight"][3][5] = 3.4e38f; });
  expect_refused(Code::corruption, {"layers.1.ffn.gate.tid2eid", "token 7", "[3, 3]"}, "f32",
                 [](Stored& tensors) { tensors["layers.1.ffn.gate.tid2eid"][7].fill_(3); });
  expect_refused(Code::corruption, {"layers.0.attn.wq_a.weight", "NaN"}, "fp8", [](Stored& tensors) {
    tensors["layers.0.attn.wq_a.weight"] = at::full({48, 64}, 0x7f, at::kByte).view(at::kFloat8_e4m3fn);
    tensors["layers.0.attn.wq_a.scale"] = at::ones({1, 1});
  });
  expect_refused(Code::invalid_argument, {"1 missing: head.weight"}, "bf16",
                 [](Stored& tensors) { tensors.erase("head.weight"); });
}

}  // namespace
