// The log-prob head: shapes, kernel or reference, and the graph node of the kernel.
#include "kernels/log_prob.h"

#include <limits>

#include <algorithm>

#include "kernels/cpu/log_prob.h"
#include "kernels/dispatch.h"
#include "kernels/given.h"
#include "kernels/gpu/log_prob.h"
#include "kernels/gpu_dispatch.h"
#include "kernels/reference/log_prob.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the node keeps beside tensors.
struct Head : torch::CustomClassHolder {
  Head(Matrix head_matrix, const LogProbOptions& options) : matrix(std::move(head_matrix)), settings(options) {
    if (!settings.absent_V.defined()) return;
    const Tensor mask_V = settings.absent_V.contiguous();
    const bool* mask = mask_V.const_data_ptr<bool>();
    for (int64_t id = 0; id < mask_V.size(0); ++id) {
      if (mask[id]) absent.push_back(static_cast<int32_t>(id));
    }
  }

  cpu::LogProbRows rows(const Tensor& hidden_ND, const Tensor& target_N) const {
    cpu::LogProbRows rows;
    rows.hidden = hidden_ND.const_data_ptr<float>();
    rows.num_rows = hidden_ND.size(0);
    rows.head = matrix.forward_panels();
    rows.targets = target_N.const_data_ptr<int64_t>();
    rows.absent = absent;
    rows.temperature = static_cast<float>(settings.temperature);
    rows.rows_per_chunk = settings.rows_per_chunk;
    return rows;
  }

  Tensor scratch(int64_t num_rows) const {
    return tensor::empty({std::min(num_rows, settings.rows_per_chunk), matrix.shape().n});
  }

  Matrix matrix;
  LogProbOptions settings;
  std::vector<int32_t> absent;
};
using HeadPointer = c10::intrusive_ptr<Head>;

static_assert(sizeof(cpu::RowSums) == 3 * sizeof(float));
struct RowResults {
  LogProbs values;
  Tensor sums_N3;
};

RowResults run_forward(const Head& head, const Tensor& hidden_ND, const Tensor& target_N) {
  const int64_t num_rows = hidden_ND.size(0);
  RowResults results{{tensor::empty({num_rows}), tensor::empty({num_rows})}, tensor::empty({num_rows, 3})};
  auto* sums = reinterpret_cast<cpu::RowSums*>(results.sums_N3.mutable_data_ptr<float>());
  const Tensor scratch = head.scratch(num_rows);
  cpu::log_probs(head.rows(hidden_ND, target_N), results.values.log_prob_N.mutable_data_ptr<float>(), sums,
                 scratch.mutable_data_ptr<float>());
  float* entropy = results.values.entropy_N.mutable_data_ptr<float>();
  for (int64_t n = 0; n < num_rows; ++n) entropy[n] = sums[n].entropy;
  return results;
}

class ChunkedLogProbs : public torch::autograd::Function<ChunkedLogProbs> {
 public:
  // leaf_VD: the head's values, for the graph; undefined when the head does not learn.
  static variable_list forward(AutogradContext* context, const Tensor& hidden_ND, const std::optional<Tensor>& leaf_VD,
                               const Tensor& target_N, const HeadPointer& head) {
    const RowResults results = run_forward(*head, hidden_ND, target_N);
    context->save_for_backward({hidden_ND, target_N, results.sums_N3});
    context->saved_data["head"] = c10::IValue::make_capsule(head);
    context->saved_data["learns"] = leaf_VD.has_value();
    return {results.values.log_prob_N, results.values.entropy_N};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &hidden_ND = saved[0], &target_N = saved[1], &sums_N3 = saved[2];
    const auto head = c10::static_intrusive_pointer_cast<Head>(context->saved_data["head"].toCapsule());
    const Tensor grad_log_prob_N = grads[0].contiguous(), grad_entropy_N = grads[1].contiguous();
    const MatrixShape& shape = head->matrix.shape();
    Tensor grad_hidden_ND, grad_head_VD;
    cpu::LogProbGradient gradient;
    gradient.log_prob = grad_log_prob_N.const_data_ptr<float>();
    gradient.entropy = grad_entropy_N.const_data_ptr<float>();
    gradient.sums = reinterpret_cast<const cpu::RowSums*>(sums_N3.const_data_ptr<float>());
    if (context->needs_input_grad(0)) {
      grad_hidden_ND = at::empty_like(hidden_ND);
      gradient.head_transposed = head->matrix.backward_panels();
      gradient.hidden = grad_hidden_ND.mutable_data_ptr<float>();
    }
    if (context->saved_data["learns"].toBool() && context->needs_input_grad(1)) {
      grad_head_VD = hidden_ND.size(0) > 0 ? at::empty({shape.n, shape.k}, hidden_ND.options())
                                           : at::zeros({shape.n, shape.k}, hidden_ND.options());
      gradient.head = grad_head_VD.mutable_data_ptr<float>();
    }
    const Tensor scratch = head->scratch(hidden_ND.size(0));
    cpu::log_prob_gradient(head->rows(hidden_ND, target_N), gradient, scratch.mutable_data_ptr<float>());
    return {grad_hidden_ND, grad_head_VD, {}, {}};
  }
};

// Logits of a chunk by a product of libtorch, then its rows by the kernel.
LogProbs on_gpu(const Tensor& hidden_ND, const Matrix& head, const Tensor& target_N, const LogProbOptions& options) {
  LogProbOptions own = options;
  if (own.absent_V.defined()) own.absent_V = own.absent_V.contiguous();
  const Tensor target = target_N.contiguous();
  const auto kernel = [=](const variable_list& in) {
    const int64_t num_rows = in[0].size(0);
    const Tensor log_prob_N = at::empty({num_rows}, in[0].options()), entropy_N = at::empty_like(log_prob_N);
    const OnDevice device(in[0]);
    gpu::LogitRows rows;
    rows.absent = own.absent_V.defined() ? own.absent_V.const_data_ptr<bool>() : nullptr;
    rows.vocab = in[1].size(0);
    rows.temperature = static_cast<float>(own.temperature);
    for (int64_t first = 0; first < num_rows; first += own.rows_per_chunk) {
      rows.rows = std::min(own.rows_per_chunk, num_rows - first);
      const Tensor logits = at::mm(in[0].narrow(0, first, rows.rows), in[1].t());
      rows.logits = logits.const_data_ptr<float>();
      rows.targets = target.const_data_ptr<int64_t>() + first;
      gpu::log_probs(rows, {log_prob_N.mutable_data_ptr<float>() + first, entropy_N.mutable_data_ptr<float>() + first},
                     device.queue());
    }
    return variable_list{log_prob_N, entropy_N};
  };
  const variable_list results =
      with_reference_gradient({hidden_ND, head.values()}, kernel, [=](const variable_list& in) {
        const LogProbs values = reference::chunked_log_probs(in[0], in[1], target, own);
        return variable_list{values.log_prob_N, values.entropy_N};
      });
  return {results[0], results[1]};
}

void check(const Tensor& hidden_ND, const Matrix& head, const Tensor& target_N, const LogProbOptions& options) {
  const MatrixShape& shape = head.shape();
  CHECK(options.temperature > 0 && options.rows_per_chunk > 0);
  CHECK(shape.stack == 0 && hidden_ND.dim() == 2 && hidden_ND.size(1) == shape.k);
  CHECK(target_N.dim() == 1 && target_N.size(0) == hidden_ND.size(0) && target_N.scalar_type() == at::kLong);
  const Tensor& absent_V = options.absent_V;
  CHECK(!absent_V.defined() ||
        (absent_V.dim() == 1 && absent_V.size(0) == shape.n && absent_V.scalar_type() == at::kBool));
}

}  // namespace

Tensor absent_mask(const std::vector<int32_t>& ids, int64_t vocab, tensor::Device device) {
  const Tensor mask_V = at::zeros({vocab}, at::kBool);
  bool any = false;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab) continue;
    mask_V.mutable_data_ptr<bool>()[id] = any = true;
  }
  return any ? mask_V.to(device) : Tensor();
}

void mark_absent(const Tensor& absent_V, float* logits, int64_t rows, int64_t vocab) {
  if (!absent_V.defined()) return;
  CHECK(absent_V.is_cpu() && absent_V.numel() == vocab);
  const bool* absent = absent_V.const_data_ptr<bool>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t id = 0; id < vocab; ++id) {
      if (absent[id]) logits[row * vocab + id] = -std::numeric_limits<float>::infinity();
    }
  }
}

LogProbs chunked_log_probs(const Tensor& hidden_ND, const Matrix& head, const Tensor& target_N,
                           const LogProbOptions& options) {
  check(hidden_ND, head, target_N, options);
  if (has_gpu_kernel(hidden_ND)) return on_gpu(hidden_ND, head, target_N, options);
  if (!has_cpu_kernel(hidden_ND)) {
    return reference::chunked_log_probs(hidden_ND, head.leaf().defined() ? head.leaf() : head.values(), target_N,
                                        options);
  }
  const Tensor dense_ND = hidden_ND.contiguous(), dense_target_N = target_N.contiguous();
  for (int64_t n = 0; n < dense_target_N.size(0); ++n) {
    const int64_t id = dense_target_N.const_data_ptr<int64_t>()[n];
    CHECK(id >= 0 && id < head.shape().n, "target {} of {}", id, head.shape().n);
  }
  const HeadPointer kept = c10::make_intrusive<Head>(head, options);
  const bool with_grad = at::GradMode::is_enabled() &&
                         (hidden_ND.requires_grad() || (head.leaf().defined() && head.leaf().requires_grad()));
  if (!with_grad) return run_forward(*kept, dense_ND, dense_target_N).values;
  const variable_list results = ChunkedLogProbs::apply(dense_ND, given(head.leaf()), dense_target_N, kept);
  return {results[0], results[1]};
}

}  // namespace kernels
