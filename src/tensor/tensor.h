// The one header that names torch, and the precompiled header of every module above it. Tensors are libtorch's; the
// names that Furlong uses stand here.
#pragma once
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include "base/check.h"  // after torch: c10 has a CHECK of its own

namespace tensor {

using Tensor = at::Tensor;
using Device = at::Device;
using at::indexing::Slice;

}  // namespace tensor
