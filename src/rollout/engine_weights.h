// The weights of a rollout engine, and the receiving end of a weight update: what arrives is converted tensor by tensor
// into a staged copy in run layout (packed panels), which replaces the serving one at commit, whole. Where the profile
// quantises, the engine quantises what arrived itself (decisions 4). Nothing is taken over from the version before.
//
// Threads: a Session calls the hooks, one at a time; commit runs inside `gate`, which must exclude readers of
// serving(). version() may be called by any thread.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/run_weights.h"
#include "weight_sync/sink.h"

namespace rollout {

using tensor::Tensor;

class EngineWeights : public weight_sync::Sink {
 public:
  // Runs `swap` at a moment when nobody reads the weights, on the calling thread, before it returns.
  using Gate = std::function<void(const std::function<void()>& swap)>;

  EngineWeights(const model::Config& config, const model::Profile& profile, tensor::Device device, Gate gate);

  int64_t version() const override { return version_.load(); }
  std::vector<weight_sync::TensorSpec> expected_tensors() const override;

  // What forward passes read: equal to RunWeights::frozen of the published values. CHECK: a version has been committed.
  const model::RunWeights& serving() const;
  const model::Profile& profile() const { return profile_; }

 protected:
  void begin(int64_t version, const weight_sync::Manifest& manifest) override;
  void write(const weight_sync::ManifestEntry& entry, const Tensor& value) override;
  void commit() override;
  void abort() noexcept override;

 private:
  // Where a named tensor lives in the staged copy: a tensor, or matrix `index` of a stack.
  struct Place {
    model::TensorInfo info;
    Tensor tensor;
    model::Matrix* matrix = nullptr;
    int64_t index = 0;
  };

  model::Config config_;
  model::Profile profile_;
  tensor::Device device_;
  Gate gate_;
  std::unique_ptr<model::RunWeights> serving_, staged_;
  std::unordered_map<std::string, Place> places_;
  int64_t staged_version_ = weight_sync::kNoVersion;
  std::atomic<int64_t> version_ = weight_sync::kNoVersion;
};

}  // namespace rollout
