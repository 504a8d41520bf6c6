// AdamW and the sum of squares by tensor operations.
#include "kernels/reference/adamw.h"

#include <cmath>

namespace kernels::reference {

namespace {
constexpr int64_t kBlock = 4096;  // short enough that no reduction of it is split over threads
}  // namespace

void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, const AdamwStep& step) {
  const at::NoGradGuard no_grad;
  const double t = static_cast<double>(step.step);
  const double rate = step.lr / (1 - std::pow(step.beta1, t)), root = 1 / std::sqrt(1 - std::pow(step.beta2, t));
  const Tensor g = grad * step.clip;
  m.mul_(step.beta1).add_(g * (1 - step.beta1));
  v.mul_(step.beta2).add_((g * (1 - step.beta2)).mul_(g));
  const Tensor below = v.sqrt().mul_(root).add_(step.eps);
  master.mul_(1 - step.lr * step.decay).sub_((m * rate).div_(below));
}

double sum_of_squares(const Tensor& values) {
  const at::NoGradGuard no_grad;
  const Tensor flat = values.detach().reshape({-1});
  const int64_t whole = flat.size(0) / kBlock;
  const auto block_norms = [](const Tensor& rows) {
    return at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, false, at::kDouble).to(at::kCPU);
  };
  double total = 0;
  const auto add = [&](const Tensor& norms) {
    const auto norm = norms.accessor<double, 1>();
    for (int64_t i = 0; i < norm.size(0); ++i) total += norm[i] * norm[i];
  };
  if (whole > 0) add(block_norms(flat.narrow(0, 0, whole * kBlock).view({whole, kBlock})));
  if (flat.size(0) > whole * kBlock) add(block_norms(flat.slice(0, whole * kBlock).unsqueeze(0)));
  return total;
}

}  // namespace kernels::reference
