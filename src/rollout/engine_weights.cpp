// Staging, conversion and the swap.
#include "rollout/engine_weights.h"

namespace rollout {

EngineWeights::EngineWeights(const model::Config& config, const model::Profile& profile, tensor::Device device,
                             Gate gate)
    : config_(config), profile_(profile), device_(device), gate_(std::move(gate)) {}

std::vector<weight_sync::TensorSpec> EngineWeights::expected_tensors() const {
  return weight_sync::expected_tensors(model::Weights::describe(config_), weight_sync::publish_as(profile_));
}

const model::Weights& EngineWeights::serving() const {
  CHECK(serving_ != nullptr, "no weights have been published to this engine");
  return serving_->run;
}

const tensor::Quantised* EngineWeights::quantised(const std::string& name) const {
  if (serving_ == nullptr) return nullptr;
  const auto at = serving_->quantised.find(name);
  return at == serving_->quantised.end() ? nullptr : &at->second;
}

void EngineWeights::begin(int64_t version, const weight_sync::Manifest&) {
  staged_ = std::make_unique<Version>();
  staged_->run = model::Weights::allocate(config_, device_);
  staged_version_ = version;
  places_.clear();
  const model::Weights& run = staged_->run;
  run.visit_named([&](const model::TensorInfo& info, const Tensor& view) { places_[info.name] = {info, view}; });
}

void EngineWeights::write(const weight_sync::ManifestEntry& entry, const Tensor& value) {
  const auto at = places_.find(entry.spec.name);
  CHECK(at != places_.end(), "{}", entry.spec.name);
  const Place& place = at->second;
  const at::NoGradGuard no_grad;
  const Tensor published = value.to(device_);
  Tensor target = place.run;
  const auto format = model::run_format(place.info, profile_);
  if (!format) {
    target.copy_(model::run_value(place.info, published, profile_));
    return;
  }
  tensor::Quantised quantised = tensor::quantise_blocks(published, *format);
  target.copy_(tensor::dequantise_blocks(quantised));
  staged_->quantised[place.info.name] = std::move(quantised);
}

void EngineWeights::commit() {
  CHECK(staged_ != nullptr);
  gate_([this] {
    serving_ = std::move(staged_);
    version_.store(staged_version_);
  });
  places_.clear();
}

void EngineWeights::abort() noexcept {
  staged_.reset();
  places_.clear();
}

}  // namespace rollout
