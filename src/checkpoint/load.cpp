// From the tensors of a model folder to f32 masters.
#include "checkpoint/load.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/stored_weights.h"
#include "tensor/text.h"

namespace checkpoint {
namespace {

using model::TensorInfo;
using model::Weights;
using tensor::Tensor;

// Each token's experts: all different, each one that exists.
void check_hash_table(const TensorInfo& info, const Tensor& tid2eid, int64_t num_experts,
                      const std::filesystem::path& folder) {
  const Tensor sorted = std::get<0>(tid2eid.sort(-1));
  const Tensor in_range = ((sorted >= 0) & (sorted < num_experts)).all(-1);
  const Tensor distinct = (sorted.slice(-1, 1) != sorted.slice(-1, 0, -1)).all(-1);
  const Tensor bad = (in_range & distinct).logical_not().nonzero();
  if (bad.size(0) == 0) return;
  const int64_t row = bad[0].item<int64_t>();
  std::vector<int64_t> experts;
  for (int64_t i = 0; i < tid2eid.size(1); ++i) experts.push_back(tid2eid[row][i].item<int64_t>());
  base::fail(
      base::Code::corruption,
      "{}: {}: token {} goes to experts {}; they should be different and from 0 to {} ({} of {} tokens are wrong)",
      folder.string(), info.name, row, tensor::shape_text(experts), num_experts - 1, bad.size(0), tid2eid.size(0));
}

}  // namespace

Weights load_weights(const std::filesystem::path& folder, tensor::Device device) {
  model::Config config = model::Config::load(folder);
  StoredWeights stored(folder);
  if (config.num_nextn_predict_layers > 0 && !stored.has_mtp()) {
    SPDLOG_INFO("{}: has no MTP tensors; the model is loaded without its MTP block", folder.string());
    config.num_nextn_predict_layers = 0;
  }
  if (!config.compressor_norm_f32) config.compressor_norm_f32 = stored.has_f32_compressor_norms();  // decisions 17
  stored.check(Weights::describe(config));
  Weights weights = Weights::allocate(config, device);
  const at::NoGradGuard no_grad;
  const Weights& views = weights;
  views.visit_named([&](const TensorInfo& info, const Tensor& place) {
    const Tensor value = stored.read(info);
    if (info.stored_as == model::StoredAs::i64) check_hash_table(info, value, config.n_routed_experts, folder);
    Tensor(place).copy_(value);
  });
  return weights;
}

}  // namespace checkpoint
