// DeepSeek-V4-Flash as published: the visitor over the parameters gives exactly the 69,187 stored tensors, without
// memory.
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/names.h"
#include "checkpoint/save.h"
#include "model/weights.h"
#include "tensor/golden.h"

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

TEST(FlashInventory, TheModelStandsOnTheMetaDevice) {
  const model::Weights weights = model::Weights::allocate(flash(), at::kMeta);
  int64_t parameters = 0;
  weights.visit([&](const model::TensorInfo& info, const tensor::Tensor& value) {
    EXPECT_TRUE(value.is_meta());
    if (info.stored_as != model::StoredAs::i64) parameters += value.numel();
  });
  EXPECT_GT(parameters, int64_t{280'000'000'000});
}

}  // namespace
