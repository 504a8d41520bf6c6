// Staging, conversion and the swap.
#include "rollout/engine_weights.h"

namespace rollout {

EngineWeights::EngineWeights(const model::Config& config, const model::Profile& profile, tensor::Device device,
                             Gate gate)
    : config_(config), profile_(profile), device_(device), gate_(std::move(gate)) {}

std::vector<weight_sync::TensorSpec> EngineWeights::expected_tensors() const {
  return weight_sync::expected_tensors(model::Weights::describe(config_), weight_sync::publish_as(profile_));
}

const model::RunWeights& EngineWeights::serving() const {
  CHECK(serving_ != nullptr, "no weights have been published to this engine");
  return *serving_;
}

void EngineWeights::begin(int64_t version, const weight_sync::Manifest&) {
  staged_ = std::make_unique<model::RunWeights>(model::RunWeights::allocate(config_, profile_, device_));
  staged_version_ = version;
  places_.clear();
  staged_->visit({[&](const model::TensorInfo& info, Tensor& tensor) {
                    places_[info.name] = {info, tensor};
                  },
                  [&](const model::TensorInfo& info, model::Matrix& matrix) {
                    if (info.stack == 0) places_[info.name] = {info, {}, &matrix};
                    for (int64_t e = 0; e < info.stack; ++e)
                      places_[fmt::format(fmt::runtime(info.name), e)] = {info, {}, &matrix, e};
                  }});
}

void EngineWeights::write(const weight_sync::ManifestEntry& entry, const Tensor& value) {
  const auto at = places_.find(entry.spec.name);
  CHECK(at != places_.end(), "{}", entry.spec.name);
  const Place& place = at->second;
  const at::NoGradGuard no_grad;
  const Tensor published = value.to(device_);
  if (place.matrix != nullptr) return set_matrix(place.info, profile_, published, place.index, *place.matrix);
  Tensor target = place.tensor;
  target.copy_(model::run_value(place.info, published, profile_));
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
