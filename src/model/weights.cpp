// The masters' form: visiting, allocating, copying.
#include "model/weights.h"

#include "model/weights_visitor.h"

namespace model {
namespace {

using See = std::function<void(const TensorInfo&, Tensor&)>;

std::vector<int64_t> stacked_shape(const TensorInfo& info) {
  std::vector<int64_t> shape = info.shape;
  if (info.stack > 0) shape.insert(shape.begin(), info.stack);
  return shape;
}

}  // namespace

void Weights::visit(const See& see) { Visitor<Tensor>(config, see, see).top(*this); }

void Weights::visit(const std::function<void(const TensorInfo&, const Tensor&)>& see) const {
  const See see_mutable = [&](const TensorInfo& info, Tensor& tensor) { see(info, tensor); };
  Visitor<Tensor>(config, see_mutable, see_mutable)
      .top(const_cast<Weights&>(*this));  // the visitor adds nothing to a complete structure
}

void Weights::visit_named(const std::function<void(const TensorInfo&, const Tensor&)>& see) const {
  visit([&](const TensorInfo& stack, const Tensor& tensor) {
    if (stack.stack == 0) return see(stack, tensor);
    TensorInfo info = stack;
    info.stack = 0;
    for (int64_t e = 0; e < stack.stack; ++e) {
      info.name = fmt::format(fmt::runtime(stack.name), e);
      see(info, tensor.defined() ? tensor.select(0, e) : Tensor());
    }
  });
}

Weights Weights::describe(const Config& config) {
  Weights weights;
  weights.config = config;
  weights.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  if (config.num_nextn_predict_layers > 0) weights.mtp.emplace();
  weights.visit([](const TensorInfo&, Tensor&) {});  // makes the optional parts
  return weights;
}

Weights Weights::allocate(const Config& config, Device device) {
  Weights weights = describe(config);
  weights.visit([&](const TensorInfo& info, Tensor& tensor) {
    tensor = at::empty(stacked_shape(info),
                       at::device(device).dtype(info.stored_as == StoredAs::i64 ? at::kLong : at::kFloat));
  });
  return weights;
}

Weights Weights::to(Device device) const {
  Weights copy = *this;
  copy.visit([&](const TensorInfo&, Tensor& tensor) { tensor = tensor.to(device); });
  return copy;
}

Weights Weights::clone() const {
  Weights copy = *this;
  copy.visit([&](const TensorInfo&, Tensor& tensor) { tensor = tensor.detach().clone(); });
  return copy;
}

Tensor published_value(const TensorInfo& info, const Tensor& master) {
  if (info.stored_as == StoredAs::i64) return master.to(at::kLong);
  return master.detach().to(info.published_f32() ? at::kFloat : at::kBFloat16);
}

}  // namespace model
