// The header that names torch, and the precompiled header of every module above it. Tensors are libtorch's; the names
// that Furlong uses stand here. Operations with a gradient of their own include tensor/autograd.h too, which is kept
// apart because whatever stands here costs every translation unit seconds.
#pragma once
#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>
#include <ATen/core/grad_mode.h>

#include "base/check.h"  // after torch: c10 has a CHECK of its own

namespace tensor {

using Tensor = at::Tensor;
using Device = at::Device;
using at::indexing::Slice;

}  // namespace tensor
