// Hyper-connections as autograd functions over the CPU kernels; on a GPU by its kernels, with the references'
// gradients.
#include "kernels/hyper_connection.h"

#include "kernels/cpu/hyper_connection.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/hyper_connection.h"
#include "kernels/gpu_dispatch.h"
#include "kernels/reference/hyper_connection.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool requires_grad(const Tensor& x) { return x.defined() && x.requires_grad(); }
const float* data(const Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; }
float* mutable_data(const Tensor& x) { return x.defined() ? x.mutable_data_ptr<float>() : nullptr; }
Tensor contiguous(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

cpu::HcPre pre_of(const Tensor& streams_TMD, const Tensor& base, const Tensor& scale, const HcOptions& options,
                  bool head) {
  cpu::HcPre pre;
  pre.streams = streams_TMD.const_data_ptr<float>();
  pre.tokens = streams_TMD.size(0);
  pre.num_streams = streams_TMD.size(1);
  pre.dim = streams_TMD.size(2);
  pre.base = base.const_data_ptr<float>();
  pre.scale = scale.const_data_ptr<float>();
  pre.head = head;
  pre.sinkhorn_iters = options.sinkhorn_iters;
  pre.hc_eps = static_cast<float>(options.hc_eps);
  pre.norm_eps = static_cast<float>(options.norm_eps);
  return pre;
}

// What hc_pre gives, with what its gradient needs. post and comb: undefined for the head; raw and rinv: unless asked.
struct PreTensors {
  Tensor input_TD, post_TM, comb_TMM, raw_TX, rinv_T;
};

PreTensors run_pre(cpu::HcPre pre, const Matrix& fn, const HcOptions& options, bool for_gradient) {
  const int64_t t = pre.tokens, m = pre.num_streams;
  PreTensors out;
  out.input_TD = tensor::empty({t, pre.dim});
  if (!pre.head) out.post_TM = tensor::empty({t, m}), out.comb_TMM = tensor::empty({t, m, m});
  if (for_gradient) out.raw_TX = at::empty({t, fn.shape().n}, at::kFloat), out.rinv_T = at::empty({t}, at::kFloat);
  pre.fn = fn.forward_panels();
  cpu::HcPreResult result;
  result.input = mutable_data(out.input_TD);
  result.round_bf16 = options.rounding == Rounding::bf16;
  result.post = mutable_data(out.post_TM);
  result.comb = mutable_data(out.comb_TMM);
  result.raw = mutable_data(out.raw_TX);
  result.rinv = mutable_data(out.rinv_T);
  cpu::hc_pre(pre, result);
  return out;
}

// The panels of fn and the numbers, kept for the backward pass.
struct SavedPre : torch::CustomClassHolder {
  SavedPre(const Matrix& matrix, const HcOptions& values, bool is_head) : fn(matrix), options(values), head(is_head) {}
  Matrix fn;
  HcOptions options;
  bool head;
};

struct Pre : torch::autograd::Function<Pre> {
  // leaf: that of fn, for the graph alone. -> input, post, comb; of the head input alone.
  static variable_list forward(AutogradContext* context, const Tensor& streams_TMD, const Tensor&, const Tensor& base,
                               const Tensor& scale, const c10::intrusive_ptr<SavedPre>& saved) {
    context->set_materialize_grads(false);
    const PreTensors out = run_pre(pre_of(streams_TMD, base, scale, saved->options, saved->head), saved->fn,
                                   saved->options, /*for_gradient=*/true);
    context->save_for_backward({streams_TMD, base, scale, out.raw_TX, out.rinv_T});
    context->saved_data["pre"] = c10::IValue::make_capsule(saved);
    if (saved->head) return {out.input_TD};
    return {out.input_TD, out.post_TM, out.comb_TMM};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<SavedPre>(context->saved_data["pre"].toCapsule());
    const variable_list saved = context->get_saved_variables();
    const Tensor &streams = saved[0], &base = saved[1], &scale = saved[2];
    for (Tensor& gradient : gradients) gradient = contiguous(gradient);
    if (!gradients[0].defined()) gradients[0] = at::zeros({streams.size(0), streams.size(2)}, at::kFloat);
    const bool weights = context->needs_input_grad(1) || context->needs_input_grad(2) || context->needs_input_grad(3);
    const Tensor dstreams = at::empty_like(streams);
    Tensor dfn, dbase, dscale;
    if (weights) {
      const MatrixShape& shape = holder->fn.shape();
      dfn = at::empty({shape.n, shape.k}, at::kFloat), dbase = at::empty_like(base), dscale = at::empty_like(scale);
    }
    cpu::HcPreGradient gradient;
    gradient.dinput = data(gradients[0]);
    if (!holder->head) gradient.dpost = data(gradients[1]), gradient.dcomb = data(gradients[2]);
    gradient.raw = data(saved[3]), gradient.rinv = data(saved[4]);
    gradient.fn_transposed = holder->fn.backward_panels();
    gradient.dstreams = mutable_data(dstreams);
    gradient.dfn = mutable_data(dfn), gradient.dbase = mutable_data(dbase), gradient.dscale = mutable_data(dscale);
    cpu::HcPre pre = pre_of(streams, base, scale, holder->options, holder->head);
    pre.fn = holder->fn.forward_panels();
    cpu::hc_pre_backward(pre, gradient);
    return {dstreams, dfn, dbase, dscale, {}};
  }
};

void check(const Tensor& streams_TMD, const HcWeights& weights, bool head) {
  CHECK(streams_TMD.dim() == 3 && weights.fn.shape().stack == 0);
  const int64_t m = streams_TMD.size(1), rows = head ? m : (2 + m) * m;
  const MatrixShape& fn = weights.fn.shape();
  CHECK(fn.n == rows && fn.k == m * streams_TMD.size(2), "fn [{}, {}] for {} streams of {}", fn.n, fn.k, m,
        streams_TMD.size(2));
  CHECK(weights.base.numel() == rows && weights.scale.numel() == (head ? 1 : 3), "{} bases, {} scales",
        weights.base.numel(), weights.scale.numel());
}

// Of the head the input alone.
HcInput pre(const Tensor& streams_TMD, const HcWeights& weights, const HcOptions& options, bool head) {
  const Tensor streams = streams_TMD.contiguous(), base = weights.base.contiguous(), scale = weights.scale.contiguous();
  const bool learns = at::GradMode::is_enabled() && (requires_grad(streams_TMD) || requires_grad(weights.fn.leaf()) ||
                                                     requires_grad(weights.base) || requires_grad(weights.scale));
  if (learns) {
    variable_list out = Pre::apply(streams, weights.fn.learning_leaf(), base, scale,
                                   c10::make_intrusive<SavedPre>(weights.fn, options, head));
    if (head) return {std::move(out[0]), {}, {}};
    return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
  }
  PreTensors out = run_pre(pre_of(streams, base, scale, options, head), weights.fn, options, /*for_gradient=*/false);
  return {std::move(out.input_TD), std::move(out.post_TM), std::move(out.comb_TMM)};
}

bool on_panels(const Tensor& streams_TMD, const HcWeights& weights) {
  return has_cpu_kernel(streams_TMD) && weights.fn.packed() && streams_TMD.size(1) <= cpu::kMaxStreams;
}

cpu::HcPost post_of(const Tensor& output_TD, const Tensor& streams_TMD, const Tensor& post_TM, const Tensor& comb_TMM) {
  return {data(output_TD),     data(streams_TMD),   data(post_TM),      data(comb_TMM),
          streams_TMD.size(0), streams_TMD.size(1), streams_TMD.size(2)};
}

Tensor run_post(const cpu::HcPost& post, bool round_bf16) {
  Tensor result = tensor::empty({post.tokens, post.num_streams, post.dim});
  cpu::hc_post(post, round_bf16, result.mutable_data_ptr<float>());
  return result;
}

struct Post : torch::autograd::Function<Post> {
  static Tensor forward(AutogradContext* context, const Tensor& output_TD, const Tensor& streams_TMD,
                        const Tensor& post_TM, const Tensor& comb_TMM, bool round_bf16) {
    context->save_for_backward({output_TD, streams_TMD, post_TM, comb_TMM});
    return run_post(post_of(output_TD, streams_TMD, post_TM, comb_TMM), round_bf16);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor dresult = gradients[0].contiguous();
    variable_list result;
    for (const Tensor& input : saved) result.push_back(at::empty_like(input));
    cpu::HcPostGradient gradient;
    gradient.dresult = data(dresult);
    gradient.doutput = mutable_data(result[0]);
    gradient.dstreams = mutable_data(result[1]);
    gradient.dpost = mutable_data(result[2]);
    gradient.dcomb = mutable_data(result[3]);
    cpu::hc_post_backward(post_of(saved[0], saved[1], saved[2], saved[3]), gradient);
    result.emplace_back();
    return result;
  }
};

cpu::Sinkhorn sinkhorn_of(const Tensor& logits_TMM, int64_t iters, double eps) {
  return {data(logits_TMM), logits_TMM.size(0), logits_TMM.size(1), iters, static_cast<float>(eps)};
}

struct SinkhornSteps : torch::autograd::Function<SinkhornSteps> {
  static Tensor forward(AutogradContext* context, const Tensor& logits_TMM, int64_t iters, double eps) {
    context->save_for_backward({logits_TMM});
    context->saved_data["iters"] = iters;
    context->saved_data["eps"] = eps;
    Tensor comb = at::empty_like(logits_TMM);
    cpu::sinkhorn(sinkhorn_of(logits_TMM, iters, eps), comb.mutable_data_ptr<float>());
    return comb;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Tensor logits = context->get_saved_variables()[0], dcomb = gradients[0].contiguous();
    Tensor dlogits = at::empty_like(logits);
    cpu::sinkhorn_backward(
        sinkhorn_of(logits, context->saved_data["iters"].toInt(), context->saved_data["eps"].toDouble()), data(dcomb),
        dlogits.mutable_data_ptr<float>());
    return {dlogits, {}, {}};
  }
};

bool fits_gpu(const Tensor& streams) { return has_gpu_kernel(streams) && streams.size(1) <= cpu::kMaxStreams; }

// -> input, post, comb; of the head input alone. The mix is a product of libtorch.
variable_list pre_on_gpu(const Tensor& streams_TMD, const HcWeights& weights, const HcOptions& options, bool head) {
  const auto kernel = [=](const variable_list& in) {
    const Tensor raw_TX = at::linear(in[0].flatten(1), in[1]);
    const int64_t t = in[0].size(0), m = in[0].size(1);
    const auto fresh = [&](at::IntArrayRef sizes) { return at::empty(sizes, in[0].options()); };
    variable_list out = {fresh({t, in[0].size(2)})};
    if (!head) out.push_back(fresh({t, m})), out.push_back(fresh({t, m, m}));
    cpu::HcPreResult result;
    result.input = mutable_data(out[0]);
    result.round_bf16 = options.rounding == Rounding::bf16;
    if (!head) result.post = mutable_data(out[1]), result.comb = mutable_data(out[2]);
    const OnDevice device(in[0]);
    gpu::hc_pre(pre_of(in[0], in[2], in[3], options, head), data(raw_TX), result, device.queue());
    return out;
  };
  const auto definition = [=](const variable_list& in) {
    const reference::HcValues values{in[1], in[2], in[3]};
    if (head) return variable_list{reference::hc_head(in[0], values, options)};
    const HcInput out = reference::hc_pre(in[0], values, options);
    return variable_list{out.input_TD, out.post_TM, out.comb_TMM};
  };
  return with_reference_gradient({streams_TMD, weights.fn.values(), weights.base, weights.scale}, kernel, definition);
}

Tensor post_on_gpu(const variable_list& inputs, Rounding rounding) {
  const auto kernel = [=](const variable_list& in) {
    const Tensor result = at::empty_like(in[1]);
    const OnDevice device(result);
    gpu::hc_post(post_of(in[0], in[1], in[2], in[3]), rounding == Rounding::bf16, mutable_data(result), device.queue());
    return variable_list{result};
  };
  return with_reference_gradient(inputs, kernel, [=](const variable_list& in) {
    return variable_list{reference::hc_post(in[0], in[1], in[2], in[3], rounding)};
  })[0];
}

Tensor sinkhorn_on_gpu(const Tensor& logits_TMM, int64_t iters, double eps) {
  const auto kernel = [=](const variable_list& in) {
    const Tensor comb = at::empty_like(in[0]);
    const OnDevice device(comb);
    gpu::sinkhorn(sinkhorn_of(in[0], iters, eps), mutable_data(comb), device.queue());
    return variable_list{comb};
  };
  return with_reference_gradient({logits_TMM}, kernel, [=](const variable_list& in) {
    return variable_list{reference::sinkhorn(in[0], iters, eps)};
  })[0];
}

}  // namespace

HcInput hc_pre(const Tensor& streams_TMD, const HcWeights& weights, const HcOptions& options) {
  check(streams_TMD, weights, /*head=*/false);
  if (fits_gpu(streams_TMD)) {
    variable_list out = pre_on_gpu(streams_TMD, weights, options, /*head=*/false);
    return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
  }
  if (!on_panels(streams_TMD, weights)) {
    const Tensor fn = weights.fn.values().to(streams_TMD.options());
    return reference::hc_pre(streams_TMD, {fn, weights.base, weights.scale}, options);
  }
  return pre(streams_TMD, weights, options, /*head=*/false);
}

Tensor hc_post(const Tensor& output_TD, const Tensor& streams_TMD, const Tensor& post_TM, const Tensor& comb_TMM,
               Rounding rounding) {
  CHECK(streams_TMD.dim() == 3);
  const int64_t t = streams_TMD.size(0), m = streams_TMD.size(1), d = streams_TMD.size(2);
  CHECK(output_TD.numel() == t * d && post_TM.numel() == t * m && comb_TMM.numel() == t * m * m,
        "{} outputs, {} and {} weights for {} tokens of {} streams of {}", output_TD.numel(), post_TM.numel(),
        comb_TMM.numel(), t, m, d);
  if (fits_gpu(streams_TMD)) return post_on_gpu({output_TD, streams_TMD, post_TM, comb_TMM}, rounding);
  if (!has_cpu_kernel(streams_TMD) || m > cpu::kMaxStreams) {
    return reference::hc_post(output_TD, streams_TMD, post_TM, comb_TMM, rounding);
  }
  const Tensor output = output_TD.contiguous(), streams = streams_TMD.contiguous();
  const Tensor post = post_TM.contiguous(), comb = comb_TMM.contiguous();
  const bool round_bf16 = rounding == Rounding::bf16;
  if (at::GradMode::is_enabled() &&
      (requires_grad(output) || requires_grad(streams) || requires_grad(post) || requires_grad(comb))) {
    return Post::apply(output, streams, post, comb, round_bf16);
  }
  return run_post(post_of(output, streams, post, comb), round_bf16);
}

Tensor hc_head(const Tensor& streams_TMD, const HcWeights& weights, const HcOptions& options) {
  check(streams_TMD, weights, /*head=*/true);
  if (fits_gpu(streams_TMD)) return pre_on_gpu(streams_TMD, weights, options, /*head=*/true)[0];
  if (!on_panels(streams_TMD, weights)) {
    const Tensor fn = weights.fn.values().to(streams_TMD.options());
    return reference::hc_head(streams_TMD, {fn, weights.base, weights.scale}, options);
  }
  return pre(streams_TMD, weights, options, /*head=*/true).input_TD;
}

Tensor sinkhorn(const Tensor& logits_TMM, int64_t iters, double eps) {
  CHECK(logits_TMM.dim() == 3 && logits_TMM.size(1) == logits_TMM.size(2) && iters >= 1);
  if (fits_gpu(logits_TMM)) return sinkhorn_on_gpu(logits_TMM, iters, eps);
  if (!has_cpu_kernel(logits_TMM) || logits_TMM.size(1) > cpu::kMaxStreams) {
    return reference::sinkhorn(logits_TMM, iters, eps);
  }
  if (at::GradMode::is_enabled() && logits_TMM.requires_grad()) {
    return SinkhornSteps::apply(logits_TMM.contiguous(), iters, eps);
  }
  const Tensor logits = logits_TMM.contiguous();
  Tensor comb = at::empty_like(logits);
  cpu::sinkhorn(sinkhorn_of(logits, iters, eps), comb.mutable_data_ptr<float>());
  return comb;
}

}  // namespace kernels
