// Inputs of an autograd function that may be absent: libtorch takes an undefined tensor only as an empty optional. An
// absent input has no number: needs_input_grad counts those that are there.
#pragma once
#include <optional>

#include "tensor/tensor.h"

namespace kernels {

inline std::optional<tensor::Tensor> given(const tensor::Tensor& value) {
  return value.defined() ? std::optional(value) : std::nullopt;
}

}  // namespace kernels
