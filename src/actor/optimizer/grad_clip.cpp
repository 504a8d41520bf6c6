// Gradient norm and clipping.
#include "actor/optimizer/grad_clip.h"

#include <algorithm>
#include <cmath>

namespace actor {

namespace {
constexpr int64_t kBlock = 4096;  // values summed by one thread; short enough that no reduction splits it
constexpr double kNormEpsilon = 1e-6;
}  // namespace

double sum_of_squares(const Tensor& grad) {
  at::NoGradGuard no_grad;
  const Tensor flat = grad.detach().reshape({-1});
  const int64_t whole = flat.size(0) / kBlock;
  const auto block_norms = [](const Tensor& rows) {
    return at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, false, at::kDouble).to(at::kCPU);
  };
  double total = 0;
  const auto add = [&](const Tensor& norms) {
    const auto values = norms.accessor<double, 1>();
    for (int64_t i = 0; i < values.size(0); ++i) total += values[i] * values[i];
  };
  if (whole > 0) add(block_norms(flat.narrow(0, 0, whole * kBlock).view({whole, kBlock})));
  if (flat.size(0) > whole * kBlock) add(block_norms(flat.slice(0, whole * kBlock).unsqueeze(0)));
  return total;
}

double global_norm(const std::vector<Tensor>& grads) {
  double total = 0;
  for (const Tensor& grad : grads) {
    if (grad.defined()) total += sum_of_squares(grad);
  }
  return std::sqrt(total);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + kNormEpsilon)) : 1.0;
}

}  // namespace actor
