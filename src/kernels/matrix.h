// A weight matrix, or a stack of equal ones (experts, output groups), in the form that products run on. An engine's
// holds packed panels only; a trainable one keeps its f32 values too, as a leaf of the graph. On a device without
// packed kernels the values are all there is.
//
// Letters: E matrices of a stack (1 for a single one), N outputs, K inputs.
#pragma once
#include <optional>
#include <vector>

#include "kernels/cpu/matmul.h"
#include "tensor/formats/block_scale.h"
#include "tensor/tensor.h"

namespace kernels {

using tensor::Tensor;

struct MatrixShape {
  int64_t stack = 0;  // 0: a single matrix [N, K]; else [E, N, K]
  int64_t n = 0, k = 0;
};

class Matrix {
 public:
  Matrix() = default;

  // An engine's: panels allocated, filled by set(). device other than CPU: values instead of panels.
  Matrix(MatrixShape shape, cpu::WeightFormat format, tensor::Device device = at::kCPU);
  // Matrix `index` of the stack (0 for a single one) from its codes and scales, or from values [N, K] (f32 or bf16; of
  // a bf16 format they are rounded). The format must be the constructor's.
  void set(int64_t index, const tensor::Quantised& quantised);
  void set(int64_t index, const Tensor& values_NK);

  // A trainable one: `values` ([N, K] or [E, N, K], f32, contiguous) is what the format can hold exactly (dequantised
  // codes for quantised formats, with `quantised` beside them). Panels for the forward and the backward product are
  // made from it; values is kept and becomes a leaf when requires_grad is set on it.
  static Matrix trainable(Tensor values, cpu::WeightFormat format, const std::optional<tensor::Quantised>& quantised);

  // Whether products run on panels; else on values().
  bool packed() const { return panels_.defined(); }
  bool defined() const { return shape_.n > 0; }
  const MatrixShape& shape() const { return shape_; }
  cpu::WeightFormat format() const { return format_; }
  // f32 [N, K] or [E, N, K]: of a trainable matrix its values; else unpacked (exact), a copy.
  Tensor values() const;
  Tensor& leaf() { return values_; }
  const Tensor& leaf() const { return values_; }  // undefined in an engine
  const Tensor& learning_leaf() const;            // for a gradient to pass through. CHECK: trainable

  cpu::PackedMatrix forward_panels(int64_t index = 0) const;   // of W [N, K]: y = x W^T
  cpu::PackedMatrix backward_panels(int64_t index = 0) const;  // of W^T [K, N]: dx = dy W. CHECK: trainable
  int64_t size_bytes() const;                                  // panels, scales and values

 private:
  MatrixShape shape_;
  cpu::WeightFormat format_ = cpu::WeightFormat::f32;
  Tensor values_;
  Tensor panels_, scales_;  // uint8 [E, bytes], f32 [E, scales]; undefined without packed kernels
  cpu::WeightFormat backward_format_ = cpu::WeightFormat::f32;  // bf16 where that holds the values exactly
  Tensor backward_panels_;                                      // uint8 [E, bytes], of a trainable one
};

}  // namespace kernels
