// Model folders of every layout that is read, made from the tiny model, and comparison of weights by name.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "base/files.h"
#include "checkpoint/tiny_model.h"
#include "tensor/formats/block_scale.h"
#include "tensor/golden.h"
#include "tensor/safetensors.h"

namespace test {

using Stored = std::map<std::string, tensor::Tensor>;
using ChangeValue = std::function<tensor::Tensor(const model::TensorInfo&, const tensor::Tensor&)>;

inline void write_folder(const std::filesystem::path& folder, const Stored& tensors,
                         const base::Json& config = tiny_config_json()) {
  std::filesystem::create_directories(folder);
  std::vector<tensor::TensorToWrite> specs;
  std::vector<tensor::Tensor> values;
  for (const auto& [name, value] : tensors) {
    specs.push_back({name, value.scalar_type(), value.sizes().vec()});
    values.push_back(value);
  }
  tensor::write_safetensors(folder / "model.safetensors", specs, [&](size_t i) { return values[i]; });
  base::write_file_atomic(folder / "config.json", config.dump());
}

inline Stored native_tensors(const model::Weights& weights) {
  Stored tensors;
  weights.visit_named([&](const model::TensorInfo& info, const tensor::Tensor& value) { tensors[info.name] = value; });
  return tensors;
}

// Codes with f32 scales that are no powers of two under the other spelling of their name, as Base checkpoints and
// engines have them.
inline Stored with_real_scales(const model::Weights& weights) {
  Stored tensors;
  weights.visit_named([&](const model::TensorInfo& info, const tensor::Tensor& value) {
    if (!info.is_quantised()) {
      tensors[info.name] = value;
      return;
    }
    const auto quantised = tensor::quantise_blocks(value, tensor::BlockFormat::e4m3);
    const tensor::Tensor counts = at::arange(quantised.scales.numel()).view(quantised.scales.sizes());
    tensors[info.name] = quantised.codes.view(at::kFloat8_e4m3fn);
    tensors[info.name + "_scale_inv"] = counts.to(at::kFloat) + 0.1f;
  });
  return tensors;
}

// Experts in stacks under transformers' run-time names; everything else native.
inline Stored with_stacks(const model::Weights& weights) {
  Stored tensors;
  for (const auto& [name, value] : native_tensors(weights)) {
    if (!name.starts_with("layers.") || name.find(".experts.") == std::string::npos) tensors[name] = value;
  }
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const auto& ffn = weights.layers[i].ffn;
    tensors[fmt::format("model.layers.{}.mlp.experts.gate_up_proj", i)] = at::cat({ffn.w1, ffn.w3}, 1);
    tensors[fmt::format("model.layers.{}.mlp.experts.down_proj", i)] = ffn.w2;
  }
  return tensors;
}

inline Stored in_half_precision(const model::Weights& weights) {
  Stored tensors = native_tensors(weights);
  for (auto& [name, value] : tensors) value = value.to(value.scalar_type() == at::kLong ? at::kInt : at::kHalf);
  return tensors;
}

inline void expect_equal(const model::Weights& got, const model::Weights& wanted, const ChangeValue& change) {
  const Stored values = native_tensors(got);
  size_t count = 0;
  wanted.visit_named([&](const model::TensorInfo& info, const tensor::Tensor& value) {
    ASSERT_TRUE(values.contains(info.name)) << info.name;
    EXPECT_TRUE(same_bits(values.at(info.name), change(info, value))) << info.name;
    ++count;
  });
  EXPECT_EQ(values.size(), count);
}

inline tensor::Tensor unchanged(const model::TensorInfo&, const tensor::Tensor& value) { return value; }

inline tensor::Tensor as_published(const model::TensorInfo& info, const tensor::Tensor& value) {
  const tensor::Tensor rounded = model::published_value(info, value);
  return info.stored_as == model::StoredAs::i64 ? rounded : rounded.to(at::kFloat);
}

}  // namespace test
