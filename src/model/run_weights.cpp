// Conversion from published values into what a profile multiplies with.
#include "model/run_weights.h"

#include <algorithm>

#include "kernels/block_scale.h"
#include "model/weights_visitor.h"

namespace model {
namespace {

using kernels::MatrixShape;
using kernels::cpu::WeightFormat;

MatrixShape matrix_shape(const TensorInfo& info) {
  if (info.groups > 0) return {info.groups, info.shape[0] / info.groups, info.shape[1]};
  return {info.stack, info.shape[0], info.shape[1]};
}

// The published value as bf16 or f32, whatever the profile: profile f32 computes with the master itself.
Tensor source_value(const TensorInfo& info, const Profile& profile, const Tensor& master) {
  return profile.round_bf16 ? published_value(info, master) : master.detach();
}

}  // namespace

void RunWeights::visit(const RunVisitor& see) { Visitor<Matrix>(config, see.tensor, see.matrix).top(*this); }

RunWeights RunWeights::describe(const Config& config) {
  RunWeights weights;
  weights.config = config;
  weights.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  if (config.num_nextn_predict_layers > 0) weights.mtp.emplace();
  weights.visit({[](const TensorInfo&, Tensor&) {}, [](const TensorInfo&, Matrix&) {}});  // makes the optional parts
  return weights;
}

RunWeights RunWeights::allocate(const Config& config, const Profile& profile, tensor::Device device) {
  RunWeights weights = describe(config);
  weights.visit({[&](const TensorInfo& info, Tensor& tensor) {
                   const auto dtype = info.stored_as == StoredAs::i64 ? at::kLong : at::kFloat;
                   tensor = at::empty(info.shape, at::device(device).dtype(dtype));
                 },
                 [&](const TensorInfo& info, Matrix& matrix) {
                   matrix = Matrix(matrix_shape(info), product_format(info, profile), device);
                 }});
  return weights;
}

RunWeights RunWeights::trainable(const Weights& masters, const Profile& profile) {
  std::vector<Tensor> values;
  masters.visit([&](const TensorInfo&, const Tensor& master) { values.push_back(master); });
  RunWeights weights = describe(masters.config);
  size_t next = 0;
  const auto source = [&](const TensorInfo& info) { return source_value(info, profile, values[next++]); };
  weights.visit({[&](const TensorInfo& info, Tensor& tensor) { tensor = run_value(info, source(info), profile); },
                 [&](const TensorInfo& info, Matrix& matrix) {
                   const Tensor published = source(info);
                   const auto format = run_format(info, profile);
                   if (!format) {
                     const MatrixShape shape = matrix_shape(info);
                     Tensor own = published.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
                     if (shape.stack > 0) own = own.view({shape.stack, shape.n, shape.k});
                     matrix = Matrix::trainable(own, product_format(info, profile), std::nullopt);
                     return;
                   }
                   const tensor::Quantised quantised = kernels::quantise_blocks(published, *format);
                   Tensor own = kernels::dequantise_blocks(quantised);
                   if (info.groups > 0) {
                     own = own.view({info.groups, -1, own.size(1)});
                     matrix = Matrix::trainable(own, product_format(info, profile), std::nullopt);
                   } else {
                     matrix = Matrix::trainable(own, product_format(info, profile), quantised);
                   }
                 }});
  return weights;
}

RunWeights RunWeights::frozen(const Weights& masters, const Profile& profile) {
  RunWeights weights = allocate(masters.config, profile, masters.embed.device());
  std::vector<Tensor> values;
  masters.visit([&](const TensorInfo&, const Tensor& master) { values.push_back(master); });
  size_t next = 0;
  const auto source = [&](const TensorInfo& info) { return source_value(info, profile, values[next++]); };
  weights.visit({[&](const TensorInfo& info, Tensor& tensor) { tensor = run_value(info, source(info), profile); },
                 [&](const TensorInfo& info, Matrix& matrix) {
                   const Tensor published = source(info);
                   if (info.stack == 0) return set_matrix(info, profile, published, 0, matrix);
                   for (int64_t e = 0; e < info.stack; ++e)
                     set_matrix(info, profile, published.select(0, e), e, matrix);
                 }});
  return weights;
}

void RunWeights::visit_leaves(const std::function<void(const TensorInfo&, Tensor&)>& see) {
  visit({see, [&](const TensorInfo& info, Matrix& matrix) { see(info, matrix.leaf()); }});
}

int64_t RunWeights::size_bytes() const {
  int64_t bytes = 0;
  const_cast<RunWeights&>(*this).visit(  // looks only
      {[&](const TensorInfo&, Tensor& tensor) { bytes += static_cast<int64_t>(tensor.nbytes()); },
       [&](const TensorInfo&, Matrix& matrix) { bytes += matrix.size_bytes(); }});
  return bytes;
}

std::optional<tensor::BlockFormat> run_format(const TensorInfo& info, const Profile& profile) {
  if (!profile.quantise || !info.is_quantised()) return std::nullopt;
  const bool expert = info.shard == ShardAxis::expert;
  return expert && profile.fp4_experts ? tensor::BlockFormat::e2m1 : tensor::BlockFormat::e4m3;
}

WeightFormat product_format(const TensorInfo& info, const Profile& profile) {
  const auto format = run_format(info, profile);
  if (format && info.groups == 0) return *format == tensor::BlockFormat::e4m3 ? WeightFormat::e4m3 : WeightFormat::e2m1;
  return profile.round_bf16 && !info.published_f32() ? WeightFormat::bf16 : WeightFormat::f32;
}

int64_t packed_bytes(const TensorInfo& info, const Profile& profile) {
  const MatrixShape shape = matrix_shape(info);
  const WeightFormat format = product_format(info, profile);
  const int64_t scales = kernels::cpu::num_scales(format, shape.n, shape.k) * static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(shape.stack, 1) * (kernels::cpu::panel_bytes(format, shape.n, shape.k) + scales);
}

int64_t trainable_bytes(const TensorInfo& info, const Profile& profile) {
  const MatrixShape shape = matrix_shape(info);
  const WeightFormat backward =
      product_format(info, profile) == WeightFormat::f32 ? WeightFormat::f32 : WeightFormat::bf16;
  const int64_t values = shape.n * shape.k * static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(shape.stack, 1) * (values + kernels::cpu::panel_bytes(backward, shape.k, shape.n)) +
         packed_bytes(info, profile);
}

Tensor run_value(const TensorInfo& info, const Tensor& published, const Profile& profile) {
  if (info.stored_as == StoredAs::i64)
    return published.to(at::kLong, /*non_blocking=*/false, /*copy=*/true).contiguous();
  if (const auto format = run_format(info, profile))
    return kernels::dequantise_blocks(kernels::quantise_blocks(published, *format));
  return published.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
}

void set_matrix(const TensorInfo& info, const Profile& profile, const Tensor& published_NK, int64_t index,
                Matrix& matrix) {
  if (info.groups > 0) {
    const Tensor groups = run_value(info, published_NK, profile).view({info.groups, -1, published_NK.size(1)});
    for (int64_t g = 0; g < info.groups; ++g) matrix.set(g, groups[g]);
    return;
  }
  const auto format = run_format(info, profile);
  if (!format) return matrix.set(index, published_NK);
  matrix.set(index, kernels::quantise_blocks(published_NK, *format));
}

}  // namespace model
