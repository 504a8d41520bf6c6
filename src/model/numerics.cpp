// Norms and the simulated storage grids.
#include "model/numerics.h"

#include "base/error.h"

namespace model {
using tensor::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor kv_entry(const Profile& profile, const Tensor& values, int64_t rope_dim) {
  if (!profile.kv_sim) return values;
  const int64_t plain = values.size(-1) - rope_dim;
  if (plain == 0) return values;
  const auto parts = values.split_with_sizes({plain, rope_dim}, -1);
  return at::cat({tensor::simulate_groups_st(parts[0].contiguous(), 64, tensor::BlockFormat::e4m3), parts[1]}, -1);
}

Tensor index_entry(const Profile& profile, const Tensor& values) {
  if (!profile.index_sim) return values;
  const int64_t dim = values.size(-1);
  if ((dim & (dim - 1)) != 0) {
    base::fail(base::Code::invalid_argument,
               "index_head_dim is {}: profile {} applies a Hadamard transform, which needs a power of two (use profile "
               "f32 or bf16)",
               dim, profile.name);
  }
  Tensor hadamard = at::ones({1, 1}, values.options());
  while (hadamard.size(0) < dim) {
    hadamard = at::cat({at::cat({hadamard, hadamard}, 1), at::cat({hadamard, -hadamard}, 1)});
  }
  const Tensor mixed = at::matmul(values, hadamard) * (1.0 / std::sqrt(static_cast<double>(dim)));
  return tensor::simulate_groups(rounded(profile, mixed), 32, tensor::BlockFormat::e2m1);
}

namespace {

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const std::optional<Tensor>& weight, double eps) {
    const Tensor rinv = at::rsqrt(x.square().mean(-1, true).add_(eps));
    context->save_for_backward({x, weight.value_or(Tensor()), rinv});
    Tensor y = x * rinv;
    return weight ? y.mul_(*weight) : y;
  }
  // u = x * rinv, g = dy * w:  dx = rinv * (g - u * mean(g * u)),  dw = sum of dy * u over tokens (spec 2).
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &rinv = saved[2];
    const Tensor u = x * rinv;
    Tensor dweight;
    if (weight.defined() && context->needs_input_grad(1)) {
      dweight = (grads[0] * u).reshape({-1, weight.size(0)}).sum(0);
    }
    const Tensor g = weight.defined() ? grads[0] * weight : grads[0];
    Tensor dx = (g * u).mean(-1, true).mul(u).neg_().add_(g).mul_(rinv);
    return {dx, dweight, Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Profile& profile, const Tensor& values, const Tensor& weight, double eps) {
  return rounded(profile, RmsNorm::apply(values, weight.defined() ? std::optional(weight) : std::nullopt, eps));
}

}  // namespace model
