// From master to published value to what a profile computes with (decisions 2 to 4).
#include "base/error.h"
#include "model/weights.h"
#include "tensor/formats/block_scale.h"

namespace model {

Tensor published_value(const TensorInfo& info, const Tensor& master) {
  if (info.stored_as == StoredAs::i64) return master.to(at::kLong);
  return master.detach().to(info.published_f32() ? at::kFloat : at::kBFloat16);
}

std::optional<tensor::BlockFormat> run_format(const TensorInfo& info, const Profile& profile) {
  if (!profile.quantise || !info.is_quantised()) return std::nullopt;
  const bool expert = info.shard == ShardAxis::expert;
  return expert && profile.fp4_experts ? tensor::BlockFormat::e2m1 : tensor::BlockFormat::e4m3;
}

Tensor run_value(const TensorInfo& info, const Tensor& published, const Profile& profile) {
  if (info.stored_as == StoredAs::i64)
    return published.to(at::kLong, /*non_blocking=*/false, /*copy=*/true).contiguous();
  if (const auto format = run_format(info, profile))
    return tensor::dequantise_blocks(tensor::quantise_blocks(published, *format));
  return published.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
}

Weights run_weights(const Weights& masters, const Profile& profile) {
  Weights out = masters;
  out.visit([&](const TensorInfo& info, Tensor& tensor) {
    const Tensor source = profile.round_bf16 ? published_value(info, tensor) : tensor.detach();
    tensor = run_value(info, source, profile);
  });
  return out;
}

}  // namespace model
