// What folders hold, counted; and DeepSeek-V4-Flash as published: the visitor over the parameters gives exactly the
// 69,187 stored tensors, without memory.
#include "checkpoint/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/folders.h"
#include "checkpoint/names.h"
#include "checkpoint/save.h"
#include "checkpoint/temporary_folder.h"
#include "model/weights.h"

namespace {

struct Form {
  std::string dtype;
  std::vector<int64_t> shape;
  bool operator==(const Form&) const = default;
};

// Expands experts.{0..255} of the compact list.
std::map<std::string, Form> inventory() {
  std::map<std::string, Form> tensors;
  const base::Json compact = base::read_json(test::golden("checkpoint/v4_flash_tensor_inventory.compact.json"));
  for (const auto& [name, value] : compact.items()) {
    const Form form{value["dtype"], value["shape"].get<std::vector<int64_t>>()};
    const size_t at = name.find("{0..255}");
    if (at == std::string::npos) {
      tensors[name] = form;
      continue;
    }
    for (int e = 0; e < 256; ++e) tensors[std::string(name).replace(at, 8, std::to_string(e))] = form;
  }
  return tensors;
}

model::Config flash() {
  return model::Config::from_json(base::read_json(test::golden("checkpoint/v4_flash_config.assembled.json")), "flash");
}

TEST(FlashInventory, TheVisitorGivesExactlyThePublishedTensors) {  // cases q-07, q-08
  const std::map<std::string, Form> published = inventory();
  ASSERT_EQ(published.size(), 69187u);
  const auto stored = checkpoint::stored_tensors(model::Weights::describe(flash()), checkpoint::SaveAs::published);
  EXPECT_EQ(stored.size(), 69187u);
  int64_t bytes = 0;
  for (const tensor::TensorToWrite& tensor : stored) {
    const auto at = published.find(tensor.name);
    ASSERT_NE(at, published.end()) << tensor.name;
    ASSERT_EQ((Form{tensor::dtype_name(tensor.dtype), tensor.shape}), at->second) << tensor.name;
    bytes += tensor.size_bytes();
  }
  EXPECT_EQ(bytes, 159609485896);  // the published total
}

TEST(FlashInventory, EveryPublishedNameTranslatesToItself) {
  for (const auto& [name, form] : inventory()) {
    const auto translation = checkpoint::to_native(name);
    ASSERT_TRUE(translation) << name;
    const bool scales = form.dtype == "F8_E8M0";
    ASSERT_EQ(translation->part, scales ? checkpoint::Part::scales : checkpoint::Part::value) << name;
    std::string weight = name;
    if (scales) weight.replace(weight.size() - 5, 5, "weight");
    ASSERT_EQ(translation->native, weight);
  }
}

// Spec 1.4, in units of 10^9 as printed there.
TEST(FlashInventory, PartsHaveThePublishedNumbersOfParameters) {
  const checkpoint::Parts parts = checkpoint::count_parts(flash());
  std::map<std::string, double> billions;
  for (const checkpoint::PartCount& count : parts.parts)
    billions[count.part] = static_cast<double>(count.parameters) / 1e9;
  const std::map<std::string, double> published = {{"attention", 4.599},
                                                   {"compressor", 0.2615},
                                                   {"indexer", 0.2257},
                                                   {"hyper-connections", .0339},
                                                   {"routed experts", 277.025},
                                                   {"shared expert", 1.082},
                                                   {"router", .0451},
                                                   {"embedding", .5295},
                                                   {"head", .5295}};
  for (const auto& [part, count] : published)
    EXPECT_NEAR(billions.at(part), count, 6e-4 * std::max(count, 0.1)) << part;
  EXPECT_NEAR(static_cast<double>(parts.model.parameters), 284.33e9, 5e6);
  EXPECT_NEAR(static_cast<double>(parts.mtp.parameters), 6.61e9, 5e6);
  EXPECT_NEAR(static_cast<double>(parts.active_without_embedding), 13.27e9, 5e6);
  EXPECT_NEAR(static_cast<double>(parts.model.active), 13.80e9, 5e6);
}

TEST(FlashInventory, TheModelStandsOnTheMetaDevice) {
  const model::Weights weights = model::Weights::allocate(flash(), at::kMeta);
  int64_t parameters = 0;
  weights.visit([&](const model::TensorInfo& info, const tensor::Tensor& value) {
    EXPECT_TRUE(value.is_meta());
    if (info.stored_as != model::StoredAs::i64) parameters += value.numel();
  });
  EXPECT_GT(parameters, int64_t{280'000'000'000});
}

std::vector<std::string> lines_of(const std::vector<checkpoint::TableRow>& rows) {
  std::vector<std::string> lines;
  for (const checkpoint::TableRow& row : rows)
    lines.push_back(fmt::format("{} {} {} {} = {}", row.name, row.tensors, row.dtype, row.bytes, row.native));
  return lines;
}

TEST(Inventory, TensorsThatDifferInNumbersOnlyAreOneLine) {
  const test::TemporaryFolder folder;
  test::write_folder(folder / "x", {{"model.layers.2.mlp.experts.gate_up_proj", at::zeros({5, 4, 2})},
                                    {"model.layers.10.mlp.experts.gate_up_proj", at::zeros({5, 4, 2})},
                                    {"layers.0.attn_norm.weight", at::zeros({3})},
                                    {"layers.1.attn_norm.weight", at::zeros({3}, at::kBFloat16)},
                                    {"layers.0.ffn.experts.0.w1.weight", at::zeros({2, 2})},
                                    {"layers.0.ffn.experts.7.w1.weight", at::zeros({2, 2})},
                                    {"layers.3.ffn.experts.1.w1.weight", at::zeros({2, 2})},
                                    {"nonsense.4", at::zeros({1})}});
  const auto rows = checkpoint::tensor_table(tensor::SafetensorsFolder(folder / "x"));
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_THAT(lines_of(checkpoint::folded(rows)),
              testing::ElementsAre(
                  "layers.0.attn_norm.weight 1 F32 12 = layers.0.attn_norm.weight",
                  "layers.{0..3}.ffn.experts.{0..7}.w1.weight 3 F32 48 = layers.{0..3}.ffn.experts.{0..7}.w1.weight",
                  "layers.1.attn_norm.weight 1 BF16 6 = layers.1.attn_norm.weight",
                  "model.layers.{2..10}.mlp.experts.gate_up_proj 2 F32 320 = layers.{2..10}.ffn.experts.{}.w1.weight",
                  "nonsense.4 1 F32 4 = "));
}

TEST(Inventory, EveryPartOfTheTinyModelHasItsBytes) {
  const test::TemporaryFolder folder;
  checkpoint::save_weights(folder / "x", test::tiny_weights(), checkpoint::SaveAs::published);
  const checkpoint::StoredWeights stored(folder / "x");
  const checkpoint::Parts parts = checkpoint::count_parts(stored.config(), &stored);
  EXPECT_EQ(parts.parts.size(), 12u);
  int64_t bytes = 0, by_format = 0;
  for (const checkpoint::PartCount& count : parts.parts) {
    EXPECT_GT(count.bytes, 0) << count.part;
    bytes += count.bytes;
  }
  for (const checkpoint::FormatCount& format : checkpoint::count_formats(stored.files())) by_format += format.bytes;
  EXPECT_EQ(bytes, by_format);
}

}  // namespace
