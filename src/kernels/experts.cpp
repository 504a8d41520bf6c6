// Experts: CPU kernels over packed panels as one node of the graph, the reference elsewhere. The shared expert takes
// the same way as the routed ones: all rows through one matrix, without weights and without a sum.
#include "kernels/experts.h"

#include "kernels/cpu/experts.h"
#include "kernels/dispatch.h"
#include "kernels/given.h"
#include "kernels/reference/experts.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Layer : torch::CustomClassHolder {
  Layer(const ExpertWeights& weights, const ExpertOptions& options_)
      : w1(weights.w1), w2(weights.w2), w3(weights.w3), options(options_) {}
  Matrix w1, w2, w3;  // sharing panels and values with the originals
  ExpertOptions options;
};

// Which matrix of the stacks a row goes through. Row order: grouped by expert.
class Rows {
 public:
  Rows(const Tensor& expert_TA, int64_t num_tokens, int64_t num_experts) : routed_(expert_TA.defined()) {
    if (routed_) {
      sorted().sort(expert_TA.const_data_ptr<int32_t>(), num_tokens, expert_TA.size(1), num_experts);
      per_token_ = expert_TA.size(1);
      count_ = sorted().size();
    } else {
      all_.count = count_ = num_tokens;
    }
  }
  std::span<const cpu::ExpertRows::Group> groups() const {
    return routed_ ? sorted().groups() : std::span(&all_, count_ > 0 ? 1 : 0);
  }
  bool routed() const { return routed_; }
  int64_t count() const { return count_; }          // P
  int64_t per_token() const { return per_token_; }  // A; 1 for the shared expert
  // Token and pair of row `first` and those after it; nullptr: the row itself.
  const int32_t* token(int64_t first) const { return routed_ ? sorted().token(first) : nullptr; }
  const int32_t* pair(int64_t first) const { return routed_ ? sorted().pair(first) : nullptr; }

 private:
  static cpu::ExpertRows& sorted() {  // one at a time is in use on a thread
    thread_local cpu::ExpertRows rows;
    return rows;
  }
  bool routed_;
  int64_t per_token_ = 1, count_ = 0;
  cpu::ExpertRows::Group all_{0, 0, 0};
};

// How the rows of a buffer lie: one per token, one per pair, or in row order.
enum class Order { token, pair, row };

struct Input {
  const float* data;
  Order order;
};
struct Output {
  float* data;
  Order order;
};

const int32_t* list(const Rows& rows, Order order, int64_t first) {
  if (order == Order::row) return nullptr;
  return order == Order::token ? rows.token(first) : rows.pair(first);
}
int64_t start(Order order, int64_t first) { return order == Order::row ? first : 0; }

enum class Way { forward, backward };

class Products {
 public:
  explicit Products(const Rows& rows) : rows_(rows) { products().clear(); }

  void add(const Matrix& weight, Way way, Input in, Output out, bool round_bf16) {
    for (const auto& [expert, first, count] : rows_.groups()) {
      cpu::Product& product = products().emplace_back();
      product.weight = way == Way::forward ? weight.forward_panels(expert) : weight.backward_panels(expert);
      product.input_stride = product.weight.k;
      product.input = in.data + start(in.order, first) * product.input_stride;
      product.input_rows = list(rows_, in.order, first);
      product.output_stride = product.weight.n;
      product.output = out.data + start(out.order, first) * product.output_stride;
      product.output_rows = list(rows_, out.order, first);
      product.m = count;
      product.round_bf16 = round_bf16;
    }
  }
  void run() { cpu::multiply(products()); }

 private:
  static std::vector<cpu::Product>& products() {  // one at a time is in use on a thread
    thread_local std::vector<cpu::Product> list;
    return list;
  }
  const Rows& rows_;
};

void multiply(const Rows& rows, const Matrix& weight, Way way, Input in, Output out, bool round_bf16) {
  Products products(rows);
  products.add(weight, way, in, out, round_bf16);
  products.run();
}

// sum over each expert's rows of dy (outer) x; zero for experts without rows.
Tensor weight_gradient(const Rows& rows, const Matrix& weight, Input dy, Input x) {
  const MatrixShape& shape = weight.shape();
  Tensor gradient = at::empty(weight.leaf().sizes(), at::kFloat);
  std::vector<cpu::OuterSum> sums(static_cast<size_t>(std::max<int64_t>(shape.stack, 1)));
  for (size_t e = 0; e < sums.size(); ++e) {
    sums[e].n = shape.n;
    sums[e].k = shape.k;
    sums[e].out = gradient.mutable_data_ptr<float>() + static_cast<int64_t>(e) * shape.n * shape.k;
  }
  for (const auto& [expert, first, count] : rows.groups()) {
    cpu::OuterSum& sum = sums[static_cast<size_t>(expert)];
    sum.m = count;
    sum.dy_stride = shape.n;
    sum.dy = dy.data + start(dy.order, first) * shape.n;
    sum.dy_rows = list(rows, dy.order, first);
    sum.x_stride = shape.k;
    sum.x = x.data + start(x.order, first) * shape.k;
    sum.x_rows = list(rows, x.order, first);
  }
  cpu::add_outer(sums);
  return gradient;
}

// Tensors of a call, contiguous f32 on the CPU. The shared expert has x alone.
struct Call {
  Tensor x, expert_TA, weight_TA, shared;
};

// What backward needs of a forward pass.
struct Kept {
  Tensor gate_PF, up_PF;
};

cpu::Swiglu activation(const Rows& rows, const Call& call, const Kept& kept, const ExpertOptions& options) {
  cpu::Swiglu swiglu;
  swiglu.gate = kept.gate_PF.const_data_ptr<float>();
  swiglu.up = kept.up_PF.const_data_ptr<float>();
  if (call.weight_TA.defined()) swiglu.weight = call.weight_TA.const_data_ptr<float>();
  swiglu.pair = rows.pair(0);
  swiglu.rows = kept.gate_PF.size(0);
  swiglu.width = kept.gate_PF.size(1);
  swiglu.limit = static_cast<float>(options.limit);
  swiglu.round_bf16 = options.rounding == Rounding::bf16;
  swiglu.simulate = options.simulate;
  return swiglu;
}

// keep: nullptr when no gradient will be asked for; then g's place is taken by h.
Tensor forward(const Call& call, const ExpertWeights& weights, const ExpertOptions& options, Kept* keep) {
  const auto fresh = [&](int64_t rows, int64_t columns) {  // what outlives this call in a graph is not for reuse
    return keep != nullptr ? at::empty({rows, columns}, at::kFloat) : tensor::empty({rows, columns});
  };
  const MatrixShape& shape = weights.w1.shape();
  const Rows rows(call.expert_TA, call.x.size(0), shape.stack);
  const bool round = options.rounding == Rounding::bf16;
  Kept kept{fresh(rows.count(), shape.n), fresh(rows.count(), shape.n)};
  const Input x{call.x.const_data_ptr<float>(), Order::token};
  Products products(rows);
  products.add(weights.w1, Way::forward, x, {kept.gate_PF.mutable_data_ptr<float>(), Order::row}, round);
  products.add(weights.w3, Way::forward, x, {kept.up_PF.mutable_data_ptr<float>(), Order::row}, round);
  products.run();

  Tensor h_PF = keep != nullptr ? fresh(rows.count(), shape.n) : kept.gate_PF;
  cpu::swiglu(activation(rows, call, kept, options), h_PF.mutable_data_ptr<float>());
  if (keep != nullptr) *keep = kept;

  Tensor out = fresh(call.x.size(0), shape.k);
  Tensor y_PD = rows.routed() ? fresh(rows.count(), shape.k) : out;
  multiply(rows, weights.w2, Way::forward, {h_PF.const_data_ptr<float>(), Order::row},
           {y_PD.mutable_data_ptr<float>(), Order::pair}, round);
  if (!rows.routed()) return out;
  cpu::PairSum sum;
  sum.rows = y_PD.const_data_ptr<float>();
  sum.end = call.shared.const_data_ptr<float>();
  sum.out = out.mutable_data_ptr<float>();
  sum.tokens = call.x.size(0);
  sum.per_token = rows.per_token();
  sum.width = shape.k;
  sum.round_bf16 = round;
  cpu::sum_pairs(sum);
  return out;
}

// dx = sum over a token's experts of dg W1, then of du W3. One buffer of P rows serves both.
Tensor input_gradient(const Rows& rows, const Layer& layer, const Tensor& x, const float* dgate, const float* dup) {
  Tensor dx = at::empty(x.sizes(), at::kFloat), dx_PD = at::empty({rows.count(), x.size(1)}, at::kFloat);
  cpu::PairSum sum;
  sum.rows = dx_PD.const_data_ptr<float>();
  sum.out = dx.mutable_data_ptr<float>();
  sum.tokens = x.size(0);
  sum.per_token = rows.per_token();
  sum.width = x.size(1);
  const Output pairs{dx_PD.mutable_data_ptr<float>(), Order::pair};
  multiply(rows, layer.w1, Way::backward, {dgate, Order::row}, pairs, false);
  cpu::sum_pairs(sum);
  multiply(rows, layer.w3, Way::backward, {dup, Order::row}, pairs, false);
  sum.start = dx.const_data_ptr<float>();
  cpu::sum_pairs(sum);
  return dx;
}

struct Wanted {
  bool x = false, weight = false, w1 = false, w2 = false, w3 = false;
};
struct Gradients {
  Tensor x, weight, w1, w2, w3;
};

Gradients backward(const Call& call, const Kept& kept, const Layer& layer, const Tensor& dy_TD, const Wanted& wanted) {
  const Rows rows(call.expert_TA, call.x.size(0), layer.w1.shape().stack);
  const cpu::Swiglu swiglu = activation(rows, call, kept, layer.options);
  const Input x{call.x.const_data_ptr<float>(), Order::token}, dy{dy_TD.const_data_ptr<float>(), Order::token};
  Gradients result;
  Tensor dgate_PF = at::empty_like(kept.gate_PF), dup_PF = at::empty_like(kept.up_PF);
  float *dgate = dgate_PF.mutable_data_ptr<float>(), *dup = dup_PF.mutable_data_ptr<float>();
  if (wanted.w2) {  // h for a moment in the place of dgate
    cpu::swiglu(swiglu, dgate);
    result.w2 = weight_gradient(rows, layer.w2, dy, {dgate, Order::row});
  }
  if (!wanted.x && !wanted.weight && !wanted.w1 && !wanted.w3) return result;
  if (wanted.weight) result.weight = at::empty_like(call.weight_TA);
  multiply(rows, layer.w2, Way::backward, dy, {dgate, Order::row}, false);  // dh, likewise
  cpu::swiglu_gradient(swiglu, dgate, {dgate, dup, wanted.weight ? result.weight.mutable_data_ptr<float>() : nullptr});
  if (wanted.w1) result.w1 = weight_gradient(rows, layer.w1, {dgate, Order::row}, x);
  if (wanted.w3) result.w3 = weight_gradient(rows, layer.w3, {dup, Order::row}, x);
  if (wanted.x) result.x = input_gradient(rows, layer, call.x, dgate, dup);
  return result;
}

struct Experts : torch::autograd::Function<Experts> {
  // The leaves of the matrices stand here for the graph alone.
  static Tensor forward(AutogradContext* context, const Tensor& x, const std::optional<Tensor>& experts,
                        const std::optional<Tensor>& weights, const std::optional<Tensor>& added, const Tensor&,
                        const Tensor&, const Tensor&, const c10::intrusive_ptr<Layer>& layer) {
    const Tensor expert_TA = experts.value_or(Tensor()), weight_TA = weights.value_or(Tensor()),
                 shared = added.value_or(Tensor());
    Kept kept;
    Tensor out =
        kernels::forward({x, expert_TA, weight_TA, shared}, {layer->w1, layer->w2, layer->w3}, layer->options, &kept);
    context->save_for_backward({x, expert_TA, weight_TA, kept.gate_PF, kept.up_PF});
    context->saved_data["layer"] = c10::IValue::make_capsule(layer);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto layer = c10::static_intrusive_pointer_cast<Layer>(context->saved_data["layer"].toCapsule());
    const variable_list saved = context->get_saved_variables();
    const bool routed = saved[1].defined();
    const size_t w1 = routed ? 4 : 1;  // after x, or after experts, weights and the shared output too
    const Wanted wanted{context->needs_input_grad(0), routed && context->needs_input_grad(2),
                        context->needs_input_grad(w1), context->needs_input_grad(w1 + 1),
                        context->needs_input_grad(w1 + 2)};
    const Tensor dy_TD = gradients[0].contiguous();
    const Gradients g =
        kernels::backward({saved[0], saved[1], saved[2], {}}, {saved[3], saved[4]}, *layer, dy_TD, wanted);
    return {g.x, {}, g.weight, routed ? gradients[0] : Tensor(), g.w1, g.w2, g.w3, {}};
  }
};

bool learns(const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

Tensor run(const Call& call, const ExpertWeights& weights, const ExpertOptions& options) {
  const Tensor &w1 = weights.w1.leaf(), &w2 = weights.w2.leaf(), &w3 = weights.w3.leaf();
  if (at::GradMode::is_enabled() &&
      (learns(call.x) || learns(call.weight_TA) || learns(call.shared) || learns(w1) || learns(w2) || learns(w3))) {
    return Experts::apply(call.x, given(call.expert_TA), given(call.weight_TA), given(call.shared),
                          weights.w1.learning_leaf(), weights.w2.learning_leaf(), weights.w3.learning_leaf(),
                          c10::make_intrusive<Layer>(weights, options));
  }
  return forward(call, weights, options, nullptr);
}

void check(const Tensor& x, const ExpertWeights& weights, bool stacked) {
  const auto is = [](const Matrix& matrix, const MatrixShape& shape, int64_t n, int64_t k) {
    return matrix.defined() && matrix.shape().stack == shape.stack && matrix.shape().n == n && matrix.shape().k == k;
  };
  const MatrixShape& shape = weights.w1.shape();
  CHECK(x.dim() == 2 && weights.w1.defined() && x.size(1) == shape.k, "{} columns, w1 has {}", x.size(1), shape.k);
  CHECK((shape.stack > 0) == stacked);
  CHECK(is(weights.w3, shape, shape.n, shape.k) && is(weights.w2, shape, shape.k, shape.n));
}

bool on_panels(const Tensor& x, const ExpertWeights& weights) {
  return has_cpu_kernel(x) && weights.w1.packed() && weights.w2.packed() && weights.w3.packed();
}

reference::ExpertValues values_of(const ExpertWeights& weights, at::ScalarType dtype) {
  return {weights.w1.values().to(dtype), weights.w2.values().to(dtype), weights.w3.values().to(dtype)};
}

}  // namespace

Tensor routed_experts(const Tensor& x, const Tensor& expert_TA, const Tensor& weight_TA, const Tensor& shared,
                      const ExpertWeights& weights, const ExpertOptions& options) {
  check(x, weights, /*stacked=*/true);
  CHECK(expert_TA.dim() == 2 && expert_TA.size(0) == x.size(0) && expert_TA.size(1) >= 1);
  CHECK(weight_TA.sizes() == expert_TA.sizes() && shared.sizes() == x.sizes());
  if (!on_panels(x, weights)) {
    return reference::routed_experts(x, expert_TA, weight_TA, shared, values_of(weights, x.scalar_type()), options);
  }
  return run({x.contiguous(), expert_TA.contiguous(), weight_TA.contiguous(), shared.contiguous()}, weights, options);
}

Tensor shared_expert(const Tensor& x, const ExpertWeights& weights, const ExpertOptions& options) {
  check(x, weights, /*stacked=*/false);
  if (!on_panels(x, weights)) return reference::shared_expert(x, values_of(weights, x.scalar_type()), options);
  return run({x.contiguous(), {}, {}, {}}, weights, options);
}

}  // namespace kernels
