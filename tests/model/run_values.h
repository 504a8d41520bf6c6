// What run weights compute with, by name.
#pragma once
#include <map>
#include <string>

#include "model/run_weights.h"

namespace test {

// Values of run weights by name, experts as stacks.
inline std::map<std::string, tensor::Tensor> values_of(const model::RunWeights& weights) {
  std::map<std::string, tensor::Tensor> values;
  auto& parts = const_cast<model::RunWeights&>(weights);  // looks only
  parts.visit({[&](const model::TensorInfo& info, tensor::Tensor& tensor) { values[info.name] = tensor; },
               [&](const model::TensorInfo& info, model::Matrix& matrix) {
                 values[info.name] = info.groups > 0 ? matrix.values().reshape(info.shape) : matrix.values();
               }});
  return values;
}

}  // namespace test
