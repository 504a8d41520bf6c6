// The norm of rows as an autograd function over the CPU kernel; on a GPU its kernel, with the reference's gradient.
#include "kernels/rms_norm.h"

#include "kernels/cpu/rms_norm.h"
#include "kernels/dispatch.h"
#include "kernels/given.h"
#include "kernels/gpu/rms_norm.h"
#include "kernels/gpu_dispatch.h"
#include "kernels/reference/rms_norm.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

cpu::NormRows rows_of(const Tensor& x, const Tensor& weight, double eps) {
  cpu::NormRows rows;
  rows.x = x.const_data_ptr<float>();
  if (weight.defined()) rows.weight = weight.const_data_ptr<float>();
  rows.k = x.size(-1);
  rows.rows = x.numel() / rows.k;
  rows.eps = static_cast<float>(eps);
  return rows;
}

Tensor normalised(const Tensor& x, const Tensor& weight, double eps, bool round_bf16) {
  cpu::NormRows rows = rows_of(x, weight, eps);
  rows.round_bf16 = round_bf16;
  Tensor y = tensor::empty(x.sizes());
  cpu::rms_norm(rows, y.mutable_data_ptr<float>());
  return y;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const std::optional<Tensor>& given_weight,
                        double eps, bool round_bf16) {
    const Tensor weight = given_weight.value_or(Tensor());
    context->save_for_backward({x, weight});
    context->saved_data["eps"] = eps;
    return normalised(x, weight, eps, round_bf16);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous();
    Tensor dx, dweight;
    if (context->needs_input_grad(0)) dx = at::empty_like(x);
    if (weight.defined() && context->needs_input_grad(1)) dweight = at::empty_like(weight);
    cpu::rms_norm_backward(rows_of(x, weight, context->saved_data["eps"].toDouble()), dy.const_data_ptr<float>(),
                           dx.defined() ? dx.mutable_data_ptr<float>() : nullptr,
                           dweight.defined() ? dweight.mutable_data_ptr<float>() : nullptr);
    return {dx, dweight, {}, {}};
  }
};

// weight: or undefined.
Tensor on_gpu(const Tensor& x, const Tensor& weight, double eps, Rounding rounding) {
  variable_list inputs = {x};
  if (weight.defined()) inputs.push_back(weight);
  const auto weight_of = [](const variable_list& in) { return in.size() > 1 ? in[1] : Tensor(); };
  const auto kernel = [=](const variable_list& in) {
    cpu::NormRows rows = rows_of(in[0], weight_of(in), eps);
    rows.round_bf16 = rounding == Rounding::bf16;
    const Tensor y = at::empty_like(in[0]);
    const OnDevice device(y);
    gpu::rms_norm(rows, y.mutable_data_ptr<float>(), device.queue());
    return variable_list{y};
  };
  return with_reference_gradient(inputs, kernel, [=](const variable_list& in) {
    return variable_list{reference::rms_norm(in[0], weight_of(in), eps, rounding)};
  })[0];
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, Rounding rounding) {
  CHECK(x.dim() >= 1 && x.size(-1) >= 1);
  CHECK(!weight.defined() || (weight.dim() == 1 && weight.size(0) == x.size(-1)), "{} weights for {} columns",
        weight.numel(), x.size(-1));
  if (has_gpu_kernel(x)) return on_gpu(x, weight, eps, rounding);
  if (!has_cpu_kernel(x)) return reference::rms_norm(x, weight, eps, rounding);
  const Tensor input = x.contiguous(), factors = weight.defined() ? weight.contiguous() : weight;
  const bool round_bf16 = rounding == Rounding::bf16;
  if (at::GradMode::is_enabled() && (x.requires_grad() || (weight.defined() && weight.requires_grad()))) {
    return RmsNorm::apply(input, given(factors), eps, round_bf16);
  }
  return normalised(input, factors, eps, round_bf16);
}

}  // namespace kernels
