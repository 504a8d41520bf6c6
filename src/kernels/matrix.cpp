// Packing of matrices into panels, and what of them is kept.
#include "kernels/matrix.h"

#include <bit>

#include "kernels/block_scale.h"
#include "tensor/formats/ue8m0.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using cpu::WeightFormat;

bool quantised_format(WeightFormat format) { return format == WeightFormat::e4m3 || format == WeightFormat::e2m1; }

tensor::BlockFormat block_format(WeightFormat format) {
  CHECK(quantised_format(format));
  return format == WeightFormat::e4m3 ? tensor::BlockFormat::e4m3 : tensor::BlockFormat::e2m1;
}

int64_t count(const MatrixShape& shape) { return std::max<int64_t>(shape.stack, 1); }

std::vector<int64_t> sizes(const MatrixShape& shape) {
  if (shape.stack == 0) return {shape.n, shape.k};
  return {shape.stack, shape.n, shape.k};
}

bool is_shape(const Tensor& tensor, const std::vector<int64_t>& shape) {
  return tensor.sizes() == at::IntArrayRef(shape);
}

Tensor element(const Tensor& stack, const MatrixShape& shape, int64_t index) {
  return shape.stack == 0 ? stack : stack.select(0, index);
}

bool fits_bf16(const Tensor& values) {
  const float* value = values.const_data_ptr<float>();
  uint32_t lost = 0;
  for (int64_t i = 0; i < values.numel(); ++i) lost |= std::bit_cast<uint32_t>(value[i]) & 0xFFFFu;
  return lost == 0;
}

void pack(WeightFormat format, const float* source, int64_t n, int64_t k, cpu::Strides strides, void* panels) {
  if (format == WeightFormat::f32) {
    cpu::pack_f32(source, n, k, strides, static_cast<float*>(panels));
  } else {
    cpu::pack_bf16(source, n, k, strides, static_cast<uint16_t*>(panels));
  }
}

Tensor empty_panels(WeightFormat format, int64_t matrices, int64_t n, int64_t k) {
  return at::empty({matrices, cpu::panel_bytes(format, n, k)}, at::kByte);
}

}  // namespace

Matrix::Matrix(MatrixShape shape, WeightFormat format, tensor::Device device) : shape_(shape), format_(format) {
  CHECK(shape.n >= 1 && shape.k >= 1 && shape.stack >= 0);
  if (!device.is_cpu()) {
    values_ = at::empty(sizes(shape), at::TensorOptions(device).dtype(at::kFloat));
    return;
  }
  panels_ = empty_panels(format, count(shape), shape.n, shape.k);
  if (quantised_format(format))
    scales_ = at::empty({count(shape), cpu::num_scales(format, shape.n, shape.k)}, at::kFloat);
}

void Matrix::set(int64_t index, const tensor::Quantised& quantised) {
  CHECK(index >= 0 && index < count(shape_));
  CHECK(block_format(format_) == quantised.format);
  CHECK(is_shape(quantised.codes, tensor::code_shape({shape_.n, shape_.k}, quantised.format)));
  CHECK(is_shape(quantised.scales, tensor::scale_shape({shape_.n, shape_.k}, quantised.format)));
  const at::NoGradGuard no_grad;
  if (!panels_.defined()) {
    element(values_, shape_, index).copy_(kernels::dequantise_blocks(quantised));
    return;
  }
  const Tensor codes = quantised.codes.to(at::kCPU).contiguous();
  Tensor scales = quantised.scales.to(at::kCPU).contiguous();
  if (scales.scalar_type() == at::kByte) scales = tensor::ue8m0_decode(scales);
  const auto pack_codes = format_ == WeightFormat::e4m3 ? cpu::pack_e4m3 : cpu::pack_e2m1;
  pack_codes(codes.const_data_ptr<uint8_t>(), scales.const_data_ptr<float>(), shape_.n, shape_.k,
             panels_.select(0, index).mutable_data_ptr<uint8_t>(), scales_.select(0, index).mutable_data_ptr<float>());
}

void Matrix::set(int64_t index, const Tensor& values_NK) {
  CHECK(index >= 0 && index < count(shape_));
  CHECK(!quantised_format(format_), "a quantised matrix is made of codes");
  CHECK(is_shape(values_NK, {shape_.n, shape_.k}));
  const at::NoGradGuard no_grad;
  Tensor values = values_NK;
  if (format_ == WeightFormat::bf16) values = values.to(at::kBFloat16);
  if (!panels_.defined()) {
    element(values_, shape_, index).copy_(values);
    return;
  }
  values = values.to(at::kCPU, at::kFloat).contiguous();
  pack(format_, values.const_data_ptr<float>(), shape_.n, shape_.k, {shape_.k, 1},
       panels_.select(0, index).mutable_data_ptr());
}

Matrix Matrix::trainable(Tensor values, WeightFormat format, const std::optional<tensor::Quantised>& quantised) {
  CHECK(values.dim() == 2 || values.dim() == 3);
  CHECK(values.scalar_type() == at::kFloat && values.is_contiguous());
  CHECK(quantised.has_value() == quantised_format(format), "codes belong to quantised formats");
  const int64_t dims = values.dim();
  const MatrixShape shape{dims == 3 ? values.size(0) : 0, values.size(dims - 2), values.size(dims - 1)};
  Matrix matrix;
  if (!values.is_cpu()) {
    matrix.shape_ = shape;
    matrix.format_ = format;
    matrix.values_ = std::move(values);
    return matrix;
  }
  matrix = Matrix(shape, format);
  const bool short_values = format != WeightFormat::f32 && fits_bf16(values);
  matrix.backward_format_ = short_values ? WeightFormat::bf16 : WeightFormat::f32;
  matrix.backward_panels_ = empty_panels(matrix.backward_format_, count(shape), shape.k, shape.n);
  for (int64_t i = 0; i < count(shape); ++i) {
    const Tensor one = element(values, shape, i).detach();
    if (quantised) {
      matrix.set(i, {element(quantised->codes, shape, i), element(quantised->scales, shape, i), quantised->format});
    } else {
      CHECK(format == WeightFormat::f32 || short_values, "values that the format does not hold");
      matrix.set(i, one);
    }
    pack(matrix.backward_format_, one.const_data_ptr<float>(), shape.k, shape.n, {1, shape.k},
         matrix.backward_panels_.select(0, i).mutable_data_ptr());
  }
  matrix.values_ = std::move(values);
  return matrix;
}

const Tensor& Matrix::learning_leaf() const {
  CHECK(values_.defined(), "a gradient through a matrix [{}, {}] that was packed for generation (Matrix::trainable)",
        shape_.n, shape_.k);
  return values_;
}

Tensor Matrix::values() const {
  CHECK(defined());
  if (values_.defined()) return values_;
  Tensor values = at::empty(sizes(shape_), at::kFloat);
  for (int64_t i = 0; i < count(shape_); ++i) {
    cpu::unpack(forward_panels(i), values.mutable_data_ptr<float>() + i * shape_.n * shape_.k);
  }
  return values;
}

cpu::PackedMatrix Matrix::forward_panels(int64_t index) const {
  CHECK(panels_.defined() && index >= 0 && index < count(shape_));
  cpu::PackedMatrix packed{format_, shape_.n, shape_.k, nullptr, nullptr};
  packed.panels = panels_.const_data_ptr<uint8_t>() + index * panels_.size(1);
  if (scales_.defined()) packed.scales = scales_.const_data_ptr<float>() + index * scales_.size(1);
  return packed;
}

cpu::PackedMatrix Matrix::backward_panels(int64_t index) const {
  CHECK(backward_panels_.defined() && index >= 0 && index < count(shape_));
  cpu::PackedMatrix packed{backward_format_, shape_.k, shape_.n, nullptr, nullptr};
  packed.panels = backward_panels_.const_data_ptr<uint8_t>() + index * backward_panels_.size(1);
  return packed;
}

int64_t Matrix::size_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& tensor : {values_, panels_, scales_, backward_panels_}) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace kernels
