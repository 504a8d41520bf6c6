// torch's autograd: functions with a backward of their own, gradients of a graph. The only header beside
// tensor/tensor.h that names torch.
#pragma once
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tensor/tensor.h"  // last: c10 has a CHECK of its own
