// The sending side of a weight update. The actor's weights are one; a checkpoint folder can be another.
#pragma once
#include <functional>
#include <string>

#include "model/weights.h"
#include "weight_sync/manifest.h"

namespace weight_sync {

class Source {
 public:
  virtual ~Source() = default;

  // The manifest of the values as they are now. They must not change before each() has returned: a receiver would
  // refuse the tensor by its checksum.
  virtual Manifest manifest() = 0;

  // Each tensor in the manifest's order, in its encoding's dtype, on any device. The receiver may keep it: its memory
  // is not written to again.
  virtual void each(const std::function<void(const std::string& name, const Tensor& value)>& see) = 0;
};

// Publishes the parameters of a model from its f32 masters.
class WeightsSource : public Source {
 public:
  // weights must outlive the source.
  WeightsSource(const model::Weights& weights, PublishAs as) : weights_(weights), as_(as) {}

  Manifest manifest() override;
  void each(const std::function<void(const std::string& name, const Tensor& value)>& see) override;

 private:
  const model::Weights& weights_;
  PublishAs as_;
};

}  // namespace weight_sync
