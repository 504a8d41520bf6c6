// Reference models of the tests: a folder with config.json, model.safetensors (native names) and one file of reference
// values per precision profile, made by the scripts in tests/golden/model. FURLONG_ORACLE names another folder of that
// form, to try the same tests by hand on it.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/run_values.h"
#include "model/transformer.h"
#include "tensor/safetensors.h"

namespace test {

using at::Tensor;

inline std::filesystem::path model_golden(const std::string& name) {
  return std::filesystem::path(FURLONG_SOURCE_DIR) / "tests/golden/model" / name;
}

// The tensors of a safetensors file.
inline std::map<std::string, Tensor> read_tensors(const std::filesystem::path& path) {
  const tensor::SafetensorsFile file(path);
  std::map<std::string, Tensor> tensors;
  for (const tensor::StoredTensor& stored : file.tensors()) tensors[stored.name] = file.read(stored);
  return tensors;
}

inline bool other_fixture() { return std::getenv("FURLONG_ORACLE") != nullptr; }

// The folder of `name`, or the one of FURLONG_ORACLE.
inline std::filesystem::path fixture_folder(const std::string& name) {
  return other_fixture() ? std::filesystem::path(std::getenv("FURLONG_ORACLE")) : model_golden(name);
}

struct Fixture {
  model::Config config;
  model::Weights masters;  // f32
  std::map<std::string, Tensor> reference;

  const Tensor& at(const std::string& name) const;
  bool has(const std::string& name) const { return reference.count(name) > 0; }

  // Documents of the reference, as spans without a cache: from `lengths`, or the rows of `input_ids` [B, S].
  std::vector<model::Span> documents() const;
  Tensor ids() const;  // int64 [T]
  Tensor rows(const std::string& name)
      const;  // [T, ...]: leading dims of a [B, S, ...] tensor merged; bf16 as f32, integers as int64
};

inline const Tensor& Fixture::at(const std::string& name) const {
  const auto found = reference.find(name);
  if (found == reference.end()) base::fail(base::Code::not_found, "the reference has no {}", name);
  return found->second;
}

inline std::vector<model::Span> Fixture::documents() const {
  std::vector<model::Span> spans;
  if (has("lengths")) {
    const Tensor& lengths = at("lengths");
    for (int64_t i = 0; i < lengths.size(0); ++i) spans.push_back({0, lengths[i].item<int64_t>(), 0});
  } else {
    spans.assign(static_cast<size_t>(at("input_ids").size(0)), model::Span{0, at("input_ids").size(1), 0});
  }
  return spans;
}

inline Tensor Fixture::ids() const { return has("lengths") ? at("ids") : at("input_ids").flatten(); }

inline Tensor Fixture::rows(const std::string& name) const {
  const Tensor& tensor = at(name);
  const Tensor rows = has("lengths") ? tensor : tensor.flatten(0, 1);
  return rows.to(at::isIntegralType(rows.scalar_type(), false) ? at::kLong : at::kFloat);
}

inline model::Weights load_masters(const model::Config& config, const std::filesystem::path& file) {
  const auto tensors = read_tensors(file);
  model::Weights weights = model::Weights::allocate(config, at::kCPU);
  size_t used = 0;
  const model::Weights& parts = weights;
  parts.visit_named([&](const model::TensorInfo& info, const Tensor& target) {
    const auto found = tensors.find(info.name);
    if (found == tensors.end()) base::fail(base::Code::not_found, "{} has no {}", file.string(), info.name);
    CHECK(found->second.sizes() == target.sizes());
    target.copy_(found->second);
    ++used;
  });
  CHECK(used == tensors.size());
  return weights;
}

// What the checkpoint loader finds out (decisions 17).
inline bool stores_f32_norms(const std::filesystem::path& file) {
  for (const auto& [name, tensor] : read_tensors(file)) {
    if (name.find("compressor.norm") != std::string::npos) return tensor.scalar_type() == at::kFloat;
  }
  return false;
}

inline Fixture load_fixture(const std::filesystem::path& folder, const std::string& profile) {
  Fixture fixture;
  fixture.config = model::Config::load(folder);
  if (!fixture.config.compressor_norm_f32)
    fixture.config.compressor_norm_f32 = stores_f32_norms(folder / "model.safetensors");
  fixture.masters = load_masters(fixture.config, folder / "model.safetensors");
  fixture.reference = read_tensors(folder / (profile + ".safetensors"));
  return fixture;
}

// Weights in the form of a forward pass, with tables for `positions`.
struct RunModel {
  RunModel() = default;
  RunModel(const model::Weights& masters, const model::Profile& p, int64_t positions = 512)
      : profile(p),
        weights(model::RunWeights::trainable(masters, p)),
        rope(model::RopeTables::make(masters.config, positions, at::kCPU)) {}

  model::Pass pass(const model::Layout& layout, const Tensor& ids_T, model::Cache* cache = nullptr,
                   model::Choices* choices = nullptr, bool recompute = false) const {
    return {.weights = weights,
            .profile = profile,
            .layout = layout,
            .rope = rope,
            .ids_T = ids_T,
            .cache = cache,
            .choices = choices,
            .recompute = recompute};
  }
  // Logits of every token.
  Tensor logits(const Tensor& streams_TMD) const {
    return model::head_logits(weights, model::final_hidden(weights, profile, streams_TMD));
  }
  // Everything but tables becomes a leaf.
  void require_gradients() {
    weights.visit_leaves([](const model::TensorInfo& info, Tensor& leaf) {
      if (info.stored_as != model::StoredAs::i64) leaf.requires_grad_();
    });
  }
  // By name, in the shape of the master.
  std::map<std::string, Tensor> gradients() {
    std::map<std::string, Tensor> found;
    weights.visit_leaves([&](const model::TensorInfo& info, Tensor& leaf) {
      if (!leaf.grad().defined()) return;
      found[info.name] = info.groups > 0 ? leaf.grad().reshape(info.shape) : leaf.grad();
    });
    return found;
  }

  model::Profile profile;
  model::RunWeights weights;
  model::RopeTables rope;
};

// || a - b || / || b ||, in f64
inline double relative_l2(const Tensor& a, const Tensor& b) {
  const Tensor wanted = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
}

inline double max_abs(const Tensor& a, const Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace test
