// One norm over all gradients, dense and expert together, and the factor that brings it down to a limit.
// Source: reference notes on trainers, 1.9; Megatron's clip_grads.
#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace actor {

using tensor::Tensor;

// sqrt of the sums of squares (kernels/adamw.h) over the tensors, in their order; undefined tensors are left out. NaN
// or infinity when any value is.
double global_norm(const std::vector<Tensor>& grads);

// min(1, max_norm / (norm + 1e-6)) for a finite norm. max_norm 0: no limit, 1.
double clip_factor(double norm, double max_norm);

}  // namespace actor
