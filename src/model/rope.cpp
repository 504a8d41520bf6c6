// Frequencies, tables and the turn of pairs.
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace model {
using tensor::Slice;
using tensor::Tensor;

std::vector<double> rope_frequencies(const Config& config, bool compress) {
  const int64_t dim = config.qk_rope_head_dim;
  const double base = compress ? config.compress_rope_theta : config.rope_theta;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dim / 2; ++i)
    frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
  if (!compress || !config.rope_scaling) return frequencies;
  const RopeScaling& yarn = *config.rope_scaling;
  const auto dim_of = [&](double turns) {
    return static_cast<double>(dim) *
           std::log(static_cast<double>(yarn.original_max_position_embeddings) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  const double low = std::max(std::floor(dim_of(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(dim_of(yarn.beta_slow)), static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / yarn.factor * ramp + frequencies[i] * (1 - ramp);
  }
  return frequencies;
}

Rotation rotation(const Config& config, bool compress, const Tensor& position_N) {
  const Tensor frequency =
      at::tensor(rope_frequencies(config, compress), at::kDouble).to(position_N.device(), at::kFloat);
  const Tensor angle = position_N.unsqueeze(1) * frequency;
  return {angle.cos(), angle.sin()};
}

namespace {

Tensor turned(const Tensor& values, const Tensor& cos, const Tensor& sin, bool inverse) {
  const int64_t dim = 2 * cos.size(1);
  std::vector<int64_t> shape(static_cast<size_t>(values.dim()), 1);
  shape.front() = cos.size(0);
  shape.back() = dim / 2;
  const Tensor c = cos.view(shape), s = inverse ? sin.neg().view(shape) : sin.view(shape);
  Tensor out = values.clone(at::MemoryFormat::Contiguous);
  Tensor pairs = out.narrow(-1, out.size(-1) - dim, dim).unflatten(-1, {dim / 2, 2});
  const Tensor even = values.slice(-1, values.size(-1) - dim, values.size(-1), 2);
  const Tensor odd = values.slice(-1, values.size(-1) - dim + 1, values.size(-1), 2);
  pairs.select(-1, 0).copy_(even * c - odd * s);
  pairs.select(-1, 1).copy_(even * s + odd * c);
  return out;
}

class Rotate : public torch::autograd::Function<Rotate> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& values, const Tensor& cos,
                        const Tensor& sin, bool inverse) {
    context->save_for_backward({cos, sin});
    context->saved_data["inverse"] = inverse;
    return turned(values, cos, sin, inverse);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {turned(grads[0], saved[0], saved[1], !context->saved_data["inverse"].toBool()), {}, {}, {}};
  }
};

}  // namespace

Tensor rotate(const Tensor& values, const Rotation& rotation, bool inverse) {
  return Rotate::apply(values, rotation.cos, rotation.sin, inverse);
}

}  // namespace model
