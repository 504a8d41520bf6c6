// Quantising: the GPU kernel for e4m3 there, the definition elsewhere.
#include "kernels/block_scale.h"

#include <algorithm>

#include "kernels/gpu/quantise.h"
#include "kernels/gpu_dispatch.h"

namespace kernels {
namespace {

using tensor::BlockFormat;
using tensor::Quantised;

bool fits_gpu(const Tensor& values, BlockFormat format) {
  const at::ScalarType dtype = values.scalar_type();
  return format == BlockFormat::e4m3 && gpu::take(values.is_cuda()) && !ReferenceScope::active() &&
         (dtype == at::kFloat || dtype == at::kBFloat16);
}

Tensor dense_f32(const Tensor& values) { return values.detach().to(at::kFloat).contiguous(); }

Tensor bytes(at::IntArrayRef sizes, const Tensor& beside) {
  return at::empty(sizes, beside.options().dtype(at::kByte));
}

int64_t num_matrices(const Tensor& weight) {
  return weight.dim() == 2 ? 1 : c10::multiply_integers(weight.sizes().slice(0, weight.dim() - 2));
}

}  // namespace

Quantised quantise_blocks(const Tensor& weight, BlockFormat format) {
  if (weight.dim() < 2 || !fits_gpu(weight, format)) return tensor::quantise_blocks(weight, format);
  const Tensor values = dense_f32(weight);
  const Tensor codes = bytes(values.sizes(), values);
  const Tensor scales = bytes(tensor::scale_shape(values.sizes().vec(), format), values);
  gpu::QuantisedBlocks blocks;
  blocks.values = values.const_data_ptr<float>();
  blocks.codes = codes.mutable_data_ptr<uint8_t>();
  blocks.scales = scales.mutable_data_ptr<uint8_t>();
  blocks.matrices = num_matrices(values);
  blocks.rows = values.size(-2);
  blocks.columns = values.size(-1);
  const OnDevice device(values);
  gpu::quantise_blocks(blocks, device.queue());
  return {codes, scales, format};
}

Tensor dequantise_blocks(const Quantised& quantised) {
  const Tensor codes = quantised.codes.contiguous(), scales = quantised.scales.contiguous();
  const bool bytes_scale = scales.scalar_type() == at::kByte, known = bytes_scale || scales.scalar_type() == at::kFloat;
  // What does not fit together is the definition's to refuse.
  if (!gpu::take(codes.is_cuda()) || ReferenceScope::active() || quantised.format != BlockFormat::e4m3 || !known ||
      codes.dim() < 2 || scales.sizes().vec() != tensor::scale_shape(codes.sizes().vec(), BlockFormat::e4m3)) {
    return tensor::dequantise_blocks(quantised);
  }
  const Tensor values = at::empty(codes.sizes(), codes.options().dtype(at::kFloat));
  gpu::StoredBlocks blocks;
  blocks.codes = codes.const_data_ptr<uint8_t>();
  if (bytes_scale) blocks.scale_bytes = scales.const_data_ptr<uint8_t>();
  if (!bytes_scale) blocks.scale_values = scales.const_data_ptr<float>();
  blocks.values = values.mutable_data_ptr<float>();
  blocks.matrices = num_matrices(codes);
  blocks.rows = codes.size(-2);
  blocks.columns = codes.size(-1);
  const OnDevice device(codes);
  gpu::dequantise_blocks(blocks, device.queue());
  return values;
}

Quantised quantise_groups(const Tensor& values, int64_t group, BlockFormat format) {
  CHECK(group > 0 && values.dim() > 0);
  if (!fits_gpu(values, format)) return tensor::quantise_groups(values, group, format);
  const Tensor rows = dense_f32(values);
  std::vector<int64_t> scale_shape = rows.sizes().vec();
  scale_shape.back() = (scale_shape.back() + group - 1) / group;
  const Tensor codes = bytes(rows.sizes(), rows), scales = bytes(scale_shape, rows);
  gpu::QuantisedGroups groups;
  groups.values = rows.const_data_ptr<float>();
  groups.codes = codes.mutable_data_ptr<uint8_t>();
  groups.scales = scales.mutable_data_ptr<uint8_t>();
  groups.columns = rows.size(-1);
  groups.rows = rows.numel() / std::max<int64_t>(groups.columns, 1);
  groups.group = group;
  const OnDevice device(rows);
  gpu::quantise_groups(groups, device.queue());
  return {codes, scales, format};
}

}  // namespace kernels
