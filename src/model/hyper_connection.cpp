// Gates, Sinkhorn and the mixing of streams, with the gradients of spec 3.6.
#include "model/hyper_connection.h"

#include "model/numerics.h"

namespace model {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One normalisation: x / (sum of x over dim + eps).
struct Normalised {
  Tensor value, sum;
  int64_t dim;
};

Normalised normalise(const Tensor& x, int64_t dim, double eps) {
  Tensor sum = x.sum(dim, true).add_(eps);
  return {x / sum, sum, dim};
}

// Works on [M, M, T], tokens last: sums over the short dims run along contiguous tokens.
class Sinkhorn : public torch::autograd::Function<Sinkhorn> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& logits_TMM, int64_t iters, double eps) {
    context->save_for_backward({logits_TMM});
    context->saved_data["iters"] = iters;
    context->saved_data["eps"] = eps;
    Tensor softmax;
    return steps(logits_TMM, iters, eps, softmax, nullptr).permute({2, 0, 1}).contiguous();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Tensor logits = context->get_saved_variables()[0];
    std::vector<Normalised> trail;
    Tensor softmax;
    steps(logits, context->saved_data["iters"].toInt(), context->saved_data["eps"].toDouble(), softmax, &trail);
    Tensor g = grads[0].permute({1, 2, 0}).contiguous();
    for (auto step = trail.rbegin(); step != trail.rend(); ++step) {
      g = (g - (g * step->value).sum(step->dim, true)).div_(step->sum);
    }
    g = softmax * (g - (g * softmax).sum(1, true));
    return {g.permute({2, 0, 1}).contiguous(), Tensor(), Tensor()};
  }

 private:
  static Tensor steps(const Tensor& logits_TMM, int64_t iters, double eps, Tensor& softmax,
                      std::vector<Normalised>* trail) {
    constexpr int64_t kSources = 0, kTargets = 1;
    softmax = at::softmax(logits_TMM.permute({1, 2, 0}).contiguous(), kTargets);
    Tensor x = softmax + eps;
    const auto step = [&](int64_t dim) {
      Normalised next = normalise(x, dim, eps);
      x = next.value;
      if (trail != nullptr) trail->push_back(std::move(next));
    };
    step(kSources);
    for (int64_t i = 1; i < iters; ++i) {
      step(kTargets);
      step(kSources);
    }
    return x;
  }
};

class Mix : public torch::autograd::Function<Mix> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& f_TD, const Tensor& streams_TMD, const Tensor& post_TM,
                        const Tensor& comb_TMM) {
    context->save_for_backward({f_TD, streams_TMD, post_TM, comb_TMM});
    return at::baddbmm(post_TM.unsqueeze(2) * f_TD.unsqueeze(1), comb_TMM.transpose(1, 2), streams_TMD);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &f = saved[0], &streams = saved[1], &post = saved[2], &comb = saved[3];
    const Tensor dout = grads[0].contiguous();
    const Tensor df = at::bmm(post.unsqueeze(1), dout).squeeze(1);
    const Tensor dpost = at::bmm(dout, f.unsqueeze(2)).squeeze(2);
    return {df, at::bmm(comb, dout), dpost, at::bmm(streams, dout.transpose(1, 2))};
  }
};

// sum over streams of pre[t, i] * X[t, i, :]
class Collect : public torch::autograd::Function<Collect> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& pre_TM, const Tensor& streams_TMD) {
    context->save_for_backward({pre_TM, streams_TMD});
    Tensor out = streams_TMD.select(1, 0) * pre_TM.narrow(1, 0, 1);
    for (int64_t i = 1; i < pre_TM.size(1); ++i) out.addcmul_(streams_TMD.select(1, i), pre_TM.narrow(1, i, 1));
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const Tensor dpre = at::bmm(saved[1], grads[0].unsqueeze(2)).squeeze(2);
    return {dpre, saved[0].unsqueeze(2) * grads[0].unsqueeze(1)};
  }
};

// (fn . x) / rms(x), the scaling after the product (spec 3.2).
Tensor mixes(const Config& config, const HyperConnection& weights, const Tensor& streams_TMD) {
  const Tensor x = streams_TMD.flatten(1);
  return at::linear(x, weights.fn) * at::rsqrt(x.square().mean(-1, true) + config.rms_norm_eps);
}

}  // namespace

Tensor sinkhorn(const Tensor& logits_TMM, int64_t iters, double eps) { return Sinkhorn::apply(logits_TMM, iters, eps); }

HcInput hc_pre(const Config& config, const Profile& profile, const HyperConnection& weights,
               const Tensor& streams_TMD) {
  const int64_t m = config.hc_mult;
  const auto mix = mixes(config, weights, streams_TMD).split_with_sizes({m, m, m * m}, 1);
  const auto base = weights.base.split_with_sizes({m, m, m * m});
  const auto gate = [&](size_t part) { return mix[part] * weights.scale[static_cast<int64_t>(part)] + base[part]; };
  const Tensor pre = at::sigmoid(gate(0)) + config.hc_eps;
  const Tensor post = 2 * at::sigmoid(gate(1));
  const Tensor comb = sinkhorn(gate(2).unflatten(1, {m, m}), config.hc_sinkhorn_iters, config.hc_eps);
  return {rounded(profile, Collect::apply(pre, streams_TMD)), post, comb};
}

Tensor hc_post(const Profile& profile, const Tensor& output_TD, const Tensor& streams_TMD, const HcInput& gates) {
  return rounded(profile, Mix::apply(output_TD, streams_TMD, gates.post_TM, gates.comb_TMM));
}

Tensor hc_head(const Config& config, const Profile& profile, const HyperConnection& weights,
               const Tensor& streams_TMD) {
  const Tensor pre = at::sigmoid(mixes(config, weights, streams_TMD) * weights.scale + weights.base) + config.hc_eps;
  return rounded(profile, Collect::apply(pre, streams_TMD));
}

}  // namespace model
