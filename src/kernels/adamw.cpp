// AdamW: kernel or reference.
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/adamw.h"
#include "kernels/dispatch.h"
#include "kernels/reference/adamw.h"

namespace kernels {
namespace {

cpu::AdamwFactors factors_of(const AdamwStep& step) {
  const double t = static_cast<double>(step.step);
  cpu::AdamwFactors factors;
  factors.clip = static_cast<float>(step.clip);
  factors.beta1 = static_cast<float>(step.beta1);
  factors.rest1 = static_cast<float>(1 - step.beta1);
  factors.beta2 = static_cast<float>(step.beta2);
  factors.rest2 = static_cast<float>(1 - step.beta2);
  factors.root = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, t)));
  factors.eps = static_cast<float>(step.eps);
  factors.keep = static_cast<float>(1 - step.lr * step.decay);
  factors.rate = static_cast<float>(step.lr / (1 - std::pow(step.beta1, t)));
  return factors;
}

}  // namespace

void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, const AdamwStep& step) {
  CHECK(step.step >= 1, "step {}", step.step);
  for (const Tensor* state : std::initializer_list<const Tensor*>{&master, &m, &v, &grad}) {
    CHECK(state->sizes() == master.sizes() && state->scalar_type() == master.scalar_type() &&
          state->device() == master.device() && (state == &grad || state->is_contiguous()));
  }
  if (!has_cpu_kernel(master)) return reference::adamw(master, m, v, grad, step);
  const Tensor dense = grad.contiguous();
  cpu::adamw(master.mutable_data_ptr<float>(), m.mutable_data_ptr<float>(), v.mutable_data_ptr<float>(),
             dense.const_data_ptr<float>(), master.numel(), factors_of(step));
}

double sum_of_squares(const Tensor& values) {
  CHECK(values.is_floating_point());
  if (!has_cpu_kernel(values)) return reference::sum_of_squares(values);
  const Tensor dense = values.contiguous();
  return cpu::sum_of_squares(dense.const_data_ptr<float>(), dense.numel());
}

}  // namespace kernels
