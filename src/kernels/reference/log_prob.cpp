// Log-softmax over the vocabulary and its entropy, whole or chunk by chunk.
#include "kernels/reference/log_prob.h"

#include <algorithm>
#include <limits>

#include "kernels/given.h"
#include "tensor/autograd.h"

namespace kernels::reference {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class See>
void for_each_chunk(int64_t num_rows, int64_t rows_per_chunk, const See& see) {
  for (int64_t first = 0; first < num_rows; first += rows_per_chunk) {
    see(first, std::min(rows_per_chunk, num_rows - first));
  }
}

class ChunkedLogProbs : public torch::autograd::Function<ChunkedLogProbs> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& hidden_ND, const Tensor& head_VD,
                               const Tensor& target_N, const std::optional<Tensor>& given_absent, double temperature,
                               int64_t rows_per_chunk) {
    const Tensor absent_V = given_absent.value_or(Tensor());
    const LogProbOptions options{temperature, absent_V, rows_per_chunk};
    Tensor log_prob_N = at::empty({hidden_ND.size(0)}, hidden_ND.options());
    Tensor entropy_N = at::empty_like(log_prob_N);
    for_each_chunk(hidden_ND.size(0), rows_per_chunk, [&](int64_t first, int64_t count) {
      const LogProbs chunk =
          log_probs(hidden_ND.narrow(0, first, count), head_VD, target_N.narrow(0, first, count), options);
      log_prob_N.narrow(0, first, count).copy_(chunk.log_prob_N);
      entropy_N.narrow(0, first, count).copy_(chunk.entropy_N);
    });
    context->save_for_backward({hidden_ND, head_VD, target_N, absent_V});
    context->saved_data["temperature"] = temperature;
    context->saved_data["rows_per_chunk"] = rows_per_chunk;
    return {log_prob_N, entropy_N};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &hidden_ND = saved[0], &head_VD = saved[1], &target_N = saved[2];
    const bool needs_hidden = context->needs_input_grad(0), needs_head = context->needs_input_grad(1);
    const LogProbOptions options{context->saved_data["temperature"].toDouble(), saved[3],
                                 context->saved_data["rows_per_chunk"].toInt()};
    Tensor grad_hidden_ND = needs_hidden ? at::empty_like(hidden_ND) : Tensor();
    Tensor grad_head_VD = needs_head ? at::zeros_like(head_VD) : Tensor();
    for_each_chunk(hidden_ND.size(0), options.rows_per_chunk, [&](int64_t first, int64_t count) {
      const at::AutoGradMode with_grad(true);
      const Tensor hidden_CD = hidden_ND.narrow(0, first, count).detach().requires_grad_();
      const Tensor head = head_VD.detach().requires_grad_();
      const LogProbs chunk = log_probs(hidden_CD, head, target_N.narrow(0, first, count), options);
      const variable_list of =
          torch::autograd::grad({chunk.log_prob_N, chunk.entropy_N}, {hidden_CD, head},
                                {grads[0].narrow(0, first, count), grads[1].narrow(0, first, count)});
      if (needs_hidden) grad_hidden_ND.narrow(0, first, count).copy_(of[0]);
      if (needs_head) grad_head_VD.add_(of[1]);
    });
    return {grad_hidden_ND, grad_head_VD, {}, {}, {}, {}};
  }
};

}  // namespace

LogProbs log_probs(const Tensor& hidden_ND, const Tensor& head_VD, const Tensor& target_N,
                   const LogProbOptions& options) {
  Tensor y_NV = at::mm(hidden_ND, head_VD.t());
  if (options.temperature != 1) y_NV = y_NV / options.temperature;
  if (options.absent_V.defined()) {
    y_NV = y_NV.masked_fill(options.absent_V, -std::numeric_limits<double>::infinity());
  }
  const Tensor log_p_NV = at::log_softmax(y_NV, 1), p_NV = log_p_NV.exp();
  // Where p is 0, log p may be -inf, and the limit of the product is 0.
  const Tensor terms_NV = log_p_NV.masked_fill(p_NV == 0, 0) * p_NV;
  return {log_p_NV.gather(1, target_N.unsqueeze(1)).squeeze(1), terms_NV.sum(1).neg()};
}

LogProbs chunked_log_probs(const Tensor& hidden_ND, const Tensor& head_VD, const Tensor& target_N,
                           const LogProbOptions& options) {
  const variable_list results = ChunkedLogProbs::apply(hidden_ND, head_VD, target_N, given(options.absent_V),
                                                       options.temperature, options.rows_per_chunk);
  return {results[0], results[1]};
}

}  // namespace kernels::reference
