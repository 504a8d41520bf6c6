// Chunked log-softmax over the vocabulary as one node of the graph.
#include "actor/log_prob.h"

#include <algorithm>
#include <limits>

namespace actor {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Chunk {
  int64_t start, rows;
};

template <class See>
void for_each_chunk(int64_t num_rows, int64_t rows_per_chunk, See&& see) {
  for (int64_t start = 0; start < num_rows; start += rows_per_chunk) {
    see(Chunk{start, std::min(rows_per_chunk, num_rows - start)});
  }
}

Tensor scaled_logits(const Tensor& hidden_CD, const Tensor& head_VD, double temperature, int64_t valid_vocab) {
  Tensor z_CV = at::mm(hidden_CD, head_VD.t());
  if (temperature != 1) z_CV.div_(temperature);
  if (valid_vocab > 0 && valid_vocab < head_VD.size(0)) {
    z_CV.slice(1, valid_vocab).fill_(-std::numeric_limits<double>::infinity());
  }
  return z_CV;
}

// Turns log-softmax rows into d(loss)/d(logits before the temperature), in place of `log_p_CV`:
//   g_lp * (onehot - p) - g_h * p * (log p + H)
Tensor logit_gradient(const Tensor& log_p_CV, const Tensor& target_C1, const Tensor& grad_lp_C1,
                      const Tensor& grad_h_C1, const Tensor& entropy_C1, double temperature) {
  const Tensor p_CV = log_p_CV.exp();
  // Where p is 0, log p is -inf and the product's limit is 0.
  Tensor grad_CV =
      log_p_CV.masked_fill(p_CV == 0, 0).add_(entropy_C1).mul_(grad_h_C1).add_(grad_lp_C1).mul_(p_CV).neg_();
  grad_CV.scatter_add_(1, target_C1, grad_lp_C1);
  if (temperature != 1) grad_CV.div_(temperature);
  return grad_CV;
}

class ChunkedLogProb : public torch::autograd::Function<ChunkedLogProb> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& hidden_ND, const Tensor& head_VD,
                               const Tensor& target_N, double temperature, int64_t valid_vocab,
                               int64_t rows_per_chunk) {
    Tensor lp_N = at::empty({hidden_ND.size(0)}, hidden_ND.options());
    Tensor entropy_N = at::empty_like(lp_N);
    for_each_chunk(hidden_ND.size(0), rows_per_chunk, [&](Chunk c) {
      const Tensor z_CV = scaled_logits(hidden_ND.narrow(0, c.start, c.rows), head_VD, temperature, valid_vocab);
      const Tensor log_p_CV = at::log_softmax(z_CV, 1);
      lp_N.narrow(0, c.start, c.rows)
          .copy_(log_p_CV.gather(1, target_N.narrow(0, c.start, c.rows).unsqueeze(1)).squeeze(1));
      const Tensor p_CV = log_p_CV.exp();
      const Tensor terms_CV = log_p_CV.masked_fill(p_CV == 0, 0).mul_(p_CV);
      entropy_N.narrow(0, c.start, c.rows).copy_(terms_CV.sum(1).neg_());
    });
    context->save_for_backward({hidden_ND, head_VD, target_N, entropy_N});
    context->saved_data["temperature"] = temperature;
    context->saved_data["valid_vocab"] = valid_vocab;
    context->saved_data["rows_per_chunk"] = rows_per_chunk;
    return {lp_N, entropy_N};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &hidden_ND = saved[0], &head_VD = saved[1], &target_N = saved[2], &entropy_N = saved[3];
    const double temperature = context->saved_data["temperature"].toDouble();
    const int64_t valid_vocab = context->saved_data["valid_vocab"].toInt();
    const bool needs_hidden = context->needs_input_grad(0), needs_head = context->needs_input_grad(1);
    Tensor grad_hidden_ND = needs_hidden ? at::empty_like(hidden_ND) : Tensor();
    Tensor grad_head_VD = needs_head ? at::zeros_like(head_VD) : Tensor();
    for_each_chunk(hidden_ND.size(0), context->saved_data["rows_per_chunk"].toInt(), [&](Chunk c) {
      const auto column = [&](const Tensor& x_N) { return x_N.narrow(0, c.start, c.rows).unsqueeze(1); };
      const Tensor hidden_CD = hidden_ND.narrow(0, c.start, c.rows);
      const Tensor log_p_CV = at::log_softmax(scaled_logits(hidden_CD, head_VD, temperature, valid_vocab), 1);
      const Tensor grad_CV = logit_gradient(log_p_CV, column(target_N), column(grads[0]), column(grads[1]),
                                            column(entropy_N), temperature);
      if (needs_hidden) grad_hidden_ND.narrow(0, c.start, c.rows).copy_(at::mm(grad_CV, head_VD));
      if (needs_head) grad_head_VD.addmm_(grad_CV.t(), hidden_CD);
    });
    return {grad_hidden_ND, grad_head_VD, {}, {}, {}, {}};
  }
};

}  // namespace

LogProbs chunked_log_probs(const Tensor& hidden_ND, const Tensor& head_VD, const Tensor& target_N,
                           const LogProbOptions& options) {
  CHECK(options.temperature > 0 && options.rows_per_chunk > 0);
  CHECK(hidden_ND.dim() == 2 && head_VD.dim() == 2 && hidden_ND.size(1) == head_VD.size(1));
  CHECK(target_N.dim() == 1 && target_N.size(0) == hidden_ND.size(0) && target_N.scalar_type() == at::kLong);
  const variable_list results = ChunkedLogProb::apply(hidden_ND.contiguous(), head_VD, target_N, options.temperature,
                                                      options.valid_vocab, options.rows_per_chunk);
  return {results[0], results[1]};
}

}  // namespace actor
