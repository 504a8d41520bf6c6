// Gradient norm and clipping.
#include "actor/optimizer/grad_clip.h"

#include <algorithm>
#include <cmath>

#include "kernels/adamw.h"

namespace actor {

namespace {
constexpr double kNormEpsilon = 1e-6;
}  // namespace

double global_norm(const std::vector<Tensor>& grads) {
  double total = 0;
  for (const Tensor& grad : grads) {
    if (grad.defined()) total += kernels::sum_of_squares(grad);
  }
  return std::sqrt(total);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + kNormEpsilon)) : 1.0;
}

}  // namespace actor
