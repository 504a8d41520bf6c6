// Activation recompute: keep the input of a stretch of the model instead of what its backward needs, and run it again
// there.
#pragma once
#include <functional>

#include "tensor/tensor.h"

namespace model {

// run(input), where backward runs `run` a second time with gradients on. `run` must give the same result again;
// gradients of the parameters it uses are added to their .grad. What `run` refers to must live until backward is done.
tensor::Tensor with_recompute(const std::function<tensor::Tensor(const tensor::Tensor&)>& run,
                              const tensor::Tensor& input);

}  // namespace model
