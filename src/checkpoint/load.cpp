// From the tensors of a model folder to f32 masters.
#include "checkpoint/load.h"

#include "base/log.h"
#include "checkpoint/hash_table.h"
#include "checkpoint/stored_weights.h"

namespace checkpoint {

using model::TensorInfo;
using model::Weights;
using tensor::Tensor;

Weights load_weights(const std::filesystem::path& folder, tensor::Device device) {
  const StoredWeights stored(folder);
  if (stored.lacks_mtp()) {
    SPDLOG_INFO("{}: has no MTP tensors; the model is loaded without its MTP block", folder.string());
  }
  stored.check();
  Weights weights = Weights::allocate(stored.config(), device);
  const at::NoGradGuard no_grad;
  const Weights& views = weights;
  views.visit_named([&](const TensorInfo& info, const Tensor& place) {
    const Tensor value = stored.read(info);
    if (info.stored_as == model::StoredAs::i64)
      check_hash_table(value, 0, stored.config().n_routed_experts, stored.place(info));
    Tensor(place).copy_(value);
  });
  return weights;
}

}  // namespace checkpoint
