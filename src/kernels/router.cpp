// Routing: CPU and GPU kernels for f32 logits, the reference elsewhere.
#include "kernels/router.h"

#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/gpu/router.h"
#include "kernels/gpu_dispatch.h"
#include "kernels/reference/router.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

cpu::RouterInput input_of(const Tensor& logits_TE, int64_t per_token, const RouterOptions& options) {
  cpu::RouterInput input;
  input.logits = logits_TE.const_data_ptr<float>();
  input.tokens = logits_TE.size(0);
  input.experts = logits_TE.size(1);
  input.per_token = per_token;
  input.scoring = options.scoring;
  input.normalise = options.normalise;
  input.factor = static_cast<float>(options.factor);
  return input;
}

void check_ids(const Tensor& expert_TA, int64_t num_experts) {
  const int32_t* id = expert_TA.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < expert_TA.numel(); ++i) {
    CHECK(id[i] >= 0 && id[i] < num_experts, "token {}: expert {} of {}", i / expert_TA.size(1), id[i], num_experts);
  }
}

struct ExpertWeightsOf : torch::autograd::Function<ExpertWeightsOf> {
  static Tensor forward(AutogradContext* context, const Tensor& logits_TE, const Tensor& expert_TA,
                        const RouterOptions& options) {
    context->save_for_backward({logits_TE, expert_TA});
    context->saved_data["scoring"] = static_cast<int64_t>(options.scoring);
    context->saved_data["normalise"] = options.normalise;
    context->saved_data["factor"] = options.factor;
    Tensor weight_TA = at::empty(expert_TA.sizes(), at::kFloat);
    cpu::expert_weights(input_of(logits_TE, expert_TA.size(1), options), expert_TA.const_data_ptr<int32_t>(),
                        weight_TA.mutable_data_ptr<float>());
    return weight_TA;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &logits_TE = saved[0], &expert_TA = saved[1], dweight_TA = gradients[0].contiguous();
    RouterOptions options;
    options.scoring = static_cast<Scoring>(context->saved_data["scoring"].toInt());
    options.normalise = context->saved_data["normalise"].toBool();
    options.factor = context->saved_data["factor"].toDouble();
    Tensor dlogits_TE = at::empty(logits_TE.sizes(), at::kFloat);
    cpu::expert_weights_gradient(input_of(logits_TE, expert_TA.size(1), options), expert_TA.const_data_ptr<int32_t>(),
                                 dweight_TA.const_data_ptr<float>(), dlogits_TE.mutable_data_ptr<float>());
    return {dlogits_TE, Tensor(), Tensor()};
  }
};

// Row by row; a table has few columns.
template <class Id>
void look_up(const Tensor& tid2eid_VA, const Tensor& ids_T, int32_t* expert) {
  const Id* table = tid2eid_VA.const_data_ptr<Id>();
  const int64_t* ids = ids_T.const_data_ptr<int64_t>();
  const int64_t vocab = tid2eid_VA.size(0), per_token = tid2eid_VA.size(1);
  for (int64_t t = 0; t < ids_T.numel(); ++t, expert += per_token) {
    CHECK(ids[t] >= 0 && ids[t] < vocab, "token id {} of {}", ids[t], vocab);
    const Id* row = table + ids[t] * per_token;
    std::transform(row, row + per_token, expert, [](Id id) { return static_cast<int32_t>(id); });
    std::sort(expert, expert + per_token);
    CHECK(expert[0] >= 0 && std::adjacent_find(expert, expert + per_token) == expert + per_token,
          "tid2eid: the row of token id {} holds a negative id or one twice", ids[t]);
  }
}

bool fits_gpu(const Tensor& logits_TE, int64_t per_token) {
  return has_gpu_kernel(logits_TE) && logits_TE.size(1) <= gpu::kMostExperts && per_token <= cpu::kMostChosen;
}

Tensor weights_on_gpu(const Tensor& logits_TE, const Tensor& expert_TA, const RouterOptions& options) {
  const Tensor expert = expert_TA.contiguous();
  const auto kernel = [&](const variable_list& in) {
    const Tensor weight_TA = at::empty(expert.sizes(), in[0].options());
    const OnDevice device(weight_TA);
    gpu::expert_weights(input_of(in[0], expert.size(1), options), expert.const_data_ptr<int32_t>(),
                        weight_TA.mutable_data_ptr<float>(), device.queue());
    return variable_list{weight_TA};
  };
  return with_reference_gradient({logits_TE}, kernel, [=](const variable_list& in) {
    return variable_list{reference::expert_weights(in[0], expert, options)};
  })[0];
}

}  // namespace

Tensor best_experts(const Tensor& logits_TE, const Tensor& bias_E, const RouterOptions& options) {
  CHECK(logits_TE.dim() == 2 && bias_E.dim() == 1 && bias_E.size(0) == logits_TE.size(1));
  const bool on_gpu = fits_gpu(logits_TE, options.experts_per_token);
  if (!on_gpu && !has_cpu_kernel(logits_TE)) return reference::best_experts(logits_TE, bias_E, options);
  const Tensor logits = logits_TE.contiguous(), bias = bias_E.contiguous();
  if (on_gpu) {
    const Tensor expert_TA = at::empty({logits.size(0), options.experts_per_token}, logits.options().dtype(at::kInt));
    const OnDevice device(logits);
    gpu::best_experts(input_of(logits, options.experts_per_token, options), bias.const_data_ptr<float>(),
                      expert_TA.mutable_data_ptr<int32_t>(), device.queue());
    return expert_TA;
  }
  Tensor expert_TA = tensor::empty({logits.size(0), options.experts_per_token}, at::kInt);
  cpu::best_experts(input_of(logits, options.experts_per_token, options), bias.const_data_ptr<float>(),
                    expert_TA.mutable_data_ptr<int32_t>());
  return expert_TA;
}

Tensor expert_weights(const Tensor& logits_TE, const Tensor& expert_TA, const RouterOptions& options) {
  CHECK(logits_TE.dim() == 2 && expert_TA.dim() == 2 && expert_TA.size(0) == logits_TE.size(0));
  if (fits_gpu(logits_TE, expert_TA.size(1))) return weights_on_gpu(logits_TE, expert_TA, options);
  if (!has_cpu_kernel(logits_TE)) return reference::expert_weights(logits_TE, expert_TA, options);
  const Tensor logits = logits_TE.contiguous(), expert = expert_TA.contiguous();
  check_ids(expert, logits.size(1));
  if (at::GradMode::is_enabled() && logits.requires_grad()) return ExpertWeightsOf::apply(logits, expert, options);
  Tensor weight_TA = tensor::empty(expert.sizes());
  cpu::expert_weights(input_of(logits, expert.size(1), options), expert.const_data_ptr<int32_t>(),
                      weight_TA.mutable_data_ptr<float>());
  return weight_TA;
}

Tensor hashed_experts(const Tensor& tid2eid_VA, const Tensor& ids_T) {
  CHECK(tid2eid_VA.dim() == 2 && tid2eid_VA.size(1) >= 1 && ids_T.dim() == 1 && ids_T.scalar_type() == at::kLong);
  CHECK(tid2eid_VA.scalar_type() == at::kLong || tid2eid_VA.scalar_type() == at::kInt);
  if (!tid2eid_VA.is_cpu() || ReferenceScope::active()) return reference::hashed_experts(tid2eid_VA, ids_T);
  const Tensor table = tid2eid_VA.contiguous(), ids = ids_T.contiguous();
  Tensor expert_TA = tensor::empty({ids.size(0), table.size(1)}, at::kInt);
  int32_t* expert = expert_TA.mutable_data_ptr<int32_t>();
  table.scalar_type() == at::kLong ? look_up<int64_t>(table, ids, expert) : look_up<int32_t>(table, ids, expert);
  return expert_TA;
}

}  // namespace kernels
