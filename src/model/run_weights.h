// The weights of a forward pass: from master to published value to what a profile computes with (decisions 2 to 4).
// Engine and actor make theirs here, from the same published values by the same steps, so that the same profile gives
// the same bytes on both sides.
#pragma once
#include <functional>
#include <optional>

#include "kernels/matrix.h"
#include "model/weights.h"

namespace model {

using kernels::Matrix;

// What runs over the parts of RunWeights: vectors and tables as tensors, matrices as such.
struct RunVisitor {
  std::function<void(const TensorInfo&, Tensor&)> tensor;
  std::function<void(const TensorInfo&, Matrix&)> matrix;
};

struct RunWeights : TopWeightsOf<Matrix> {
  // Each once, in the order of Weights::visit; experts as stacks.
  void visit(const RunVisitor& see);

  // The structure with undefined tensors and matrices.
  static RunWeights describe(const Config& config);
  // An engine's: everything allocated, nothing set: set_matrix and run_value fill it.
  static RunWeights allocate(const Config& config, const Profile& profile, tensor::Device device);
  // An actor's: from its masters, differentiable: visit_leaves gives what gradients reach.
  static RunWeights trainable(const Weights& masters, const Profile& profile);
  // Not differentiable, packed like an engine's.
  static RunWeights frozen(const Weights& masters, const Profile& profile);
  // Of a trainable one: the tensor that carries the gradient of each parameter, in the order of visit. wo_a's is a view
  // [G, O, HK/G] of the master's shape.
  void visit_leaves(const std::function<void(const TensorInfo&, Tensor&)>& see);
  int64_t size_bytes() const;
};

// How a profile stores a tensor in blocks; nullopt where it does not quantise it.
std::optional<tensor::BlockFormat> run_format(const TensorInfo& info, const Profile& profile);

// In what form a profile multiplies with a matrix.
kernels::cpu::WeightFormat product_format(const TensorInfo& info, const Profile& profile);
// Bytes of its panels and scales.
int64_t packed_bytes(const TensorInfo& info, const Profile& profile);
// The same of a trainable matrix: values, panels of the forward and of the backward product.
int64_t trainable_bytes(const TensorInfo& info, const Profile& profile);

// The values that a profile computes with: the published value, then (where it quantises) quantised and dequantised
// exactly. Always f32 (int64 for tid2eid), contiguous, own memory. Profile f32 keeps the master.
Tensor run_value(const TensorInfo& info, const Tensor& published, const Profile& profile);

// Sets matrix `index` of a stack (0 for a single one) from a published value [N, K]; for wo_a all of its groups.
void set_matrix(const TensorInfo& info, const Profile& profile, const Tensor& published_NK, int64_t index,
                Matrix& matrix);

}  // namespace model
