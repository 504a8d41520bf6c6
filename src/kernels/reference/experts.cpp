// Rows sorted by expert, grouped products over them, and the sum in the order of the experts.
#include "kernels/reference/experts.h"

#include <ATen/ops/_grouped_mm.h>

#include "kernels/reference/linear.h"
#include "kernels/reference/simulate.h"
#include "tensor/autograd.h"

namespace kernels::reference {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GroupedProduct : torch::autograd::Function<GroupedProduct> {
  static Tensor forward(AutogradContext* context, const Tensor& x_PK, const Tensor& weight_ENK, const Tensor& ends_E) {
    context->save_for_backward({x_PK, weight_ENK, ends_E});
    return at::_grouped_mm(x_PK, weight_ENK.transpose(1, 2), ends_E);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor dy = gradients[0].contiguous();
    Tensor dx, dweight;
    if (context->needs_input_grad(0)) dx = at::_grouped_mm(dy, saved[1], saved[2]);
    if (context->needs_input_grad(1)) dweight = at::_grouped_mm(dy.t(), saved[0], saved[2]);
    return {dx, dweight, Tensor()};
  }
};

// Rows of a matrix. The gradient is summed in index order (deterministic).
Tensor gather_rows(const Tensor& rows, const Tensor& index) { return at::embedding(rows, index); }

Tensor activated(const Tensor& gate, const Tensor& up, const Tensor& weight, const ExpertOptions& options) {
  const double limit = options.limit;
  const Tensor g = limit > 0 ? gate.clamp_max(limit) : gate, u = limit > 0 ? up.clamp(-limit, limit) : up;
  const Tensor product = at::silu(g) * u;
  const Tensor h = rounded(weight.defined() ? weight * product : product, options.rounding);
  return options.simulate ? simulate_groups(h, 128, tensor::BlockFormat::e4m3) : h;
}

}  // namespace

Tensor expert_products(const Tensor& x_PK, const Tensor& weight_ENK, const Tensor& expert_P) {
  if (x_PK.scalar_type() == at::kDouble) {  // which _grouped_mm does not take: a matrix for each row, for small tests
    return at::bmm(weight_ENK.index_select(0, expert_P), x_PK.unsqueeze(2)).squeeze(2);
  }
  const Tensor ends_E = at::searchsorted(expert_P, at::arange(weight_ENK.size(0), expert_P.options()),
                                         /*out_int32=*/true, /*right=*/true);
  constexpr int64_t kAligned = 4;  // _grouped_mm wants rows of whole 16 bytes
  const int64_t num_out = weight_ENK.size(1), more_out = -num_out & (kAligned - 1),
                more_in = -weight_ENK.size(2) & (kAligned - 1);
  if (more_out == 0 && more_in == 0) return GroupedProduct::apply(x_PK, weight_ENK, ends_E);
  const Tensor input = at::constant_pad_nd(x_PK, {0, more_in}),
               weight = at::constant_pad_nd(weight_ENK, {0, more_in, 0, more_out});
  return GroupedProduct::apply(input, weight, ends_E).narrow(1, 0, num_out);
}

Tensor routed_experts(const Tensor& x, const Tensor& expert_TA, const Tensor& weight_TA, const Tensor& shared,
                      const ExpertValues& weights, const ExpertOptions& options) {
  const int64_t num_tokens = x.size(0), per_token = expert_TA.size(1);
  if (num_tokens == 0) return rounded(shared, options.rounding);
  const auto [expert_P, pair_P] =
      at::sort(expert_TA.to(at::kLong).flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor in_PD = gather_rows(x, pair_P.floor_divide(per_token));
  const Tensor gate_PF = rounded(expert_products(in_PD, weights.w1, expert_P), options.rounding);
  const Tensor up_PF = rounded(expert_products(in_PD, weights.w3, expert_P), options.rounding);
  const Tensor weight_P1 = gather_rows(weight_TA.reshape({-1, 1}), pair_P);
  const Tensor hidden_PF = activated(gate_PF, up_PF, weight_P1, options);
  const Tensor out_PD = rounded(expert_products(hidden_PF, weights.w2, expert_P), options.rounding);
  const Tensor place_P = at::empty_like(pair_P).scatter_(0, pair_P, at::arange(pair_P.size(0), pair_P.options()));
  const Tensor out_TAD = gather_rows(out_PD, place_P).view({num_tokens, per_token, -1});
  Tensor sum_TD = out_TAD.select(1, 0);
  for (int64_t a = 1; a < per_token; ++a) sum_TD = sum_TD + out_TAD.select(1, a);
  return rounded(sum_TD + shared, options.rounding);
}

Tensor shared_expert(const Tensor& x, const ExpertValues& weights, const ExpertOptions& options) {
  const Tensor gate = linear(x, weights.w1, options.rounding), up = linear(x, weights.w3, options.rounding);
  return linear(activated(gate, up, Tensor(), options), weights.w2, options.rounding);
}

}  // namespace kernels::reference
