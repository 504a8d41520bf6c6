// Products and their gradients: CPU kernels over packed panels, the reference elsewhere.
#include "kernels/linear.h"

#include "kernels/dispatch.h"
#include "kernels/reference/linear.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of floats as the products want them. `tensor` keeps them alive.
struct RowsOf {
  Tensor tensor;
  const float* data = nullptr;
  int64_t stride = 0, count = 0;
};

// x of any dims, contiguous, as rows of `width`.
RowsOf dense_rows(const Tensor& x, int64_t width) { return {x, x.const_data_ptr<float>(), width, x.numel() / width}; }

RowsOf rows_of(const Tensor& x) {
  const bool as_is = x.dim() == 2 && (x.stride(1) == 1 || x.size(1) == 1);
  RowsOf rows{as_is || x.is_contiguous() ? x : x.contiguous(), nullptr, 0, 0};
  const int64_t width = x.size(-1);
  rows.data = rows.tensor.const_data_ptr<float>();
  rows.stride = as_is ? x.stride(0) : width;
  rows.count = x.numel() / width;
  return rows;
}

// Product g of a stack takes columns g * k of x's rows to columns g * n of y's. A single matrix is a stack of one.
void multiply_groups(const RowsOf& x, const Matrix& weight, bool backward, bool round_bf16, float* y) {
  const int64_t groups = std::max<int64_t>(weight.shape().stack, 1);
  thread_local std::vector<cpu::Product> products;
  products.clear();
  for (int64_t g = 0; g < groups; ++g) {
    cpu::Product& product = products.emplace_back();
    product.weight = backward ? weight.backward_panels(g) : weight.forward_panels(g);
    product.input = x.data + g * product.weight.k;
    product.input_stride = x.stride;
    product.output = y + g * product.weight.n;
    product.output_stride = groups * product.weight.n;
    product.m = x.count;
    product.round_bf16 = round_bf16;
  }
  cpu::multiply(products);
}

Tensor weight_gradient(const RowsOf& dy, const RowsOf& x, const Matrix& weight) {
  const MatrixShape& shape = weight.shape();
  const int64_t groups = std::max<int64_t>(shape.stack, 1);
  Tensor gradient = at::empty(weight.leaf().sizes(), at::kFloat);
  std::vector<cpu::OuterSum> sums(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    cpu::OuterSum& sum = sums[static_cast<size_t>(g)];
    sum.dy = dy.data + g * shape.n;
    sum.dy_stride = dy.stride;
    sum.x = x.data + g * shape.k;
    sum.x_stride = x.stride;
    sum.m = x.count;
    sum.n = shape.n;
    sum.k = shape.k;
    sum.out = gradient.mutable_data_ptr<float>() + g * shape.n * shape.k;
  }
  cpu::add_outer(sums);
  return gradient;
}

int64_t outputs(const Matrix& weight) { return std::max<int64_t>(weight.shape().stack, 1) * weight.shape().n; }

at::DimVector with_last(const Tensor& x, int64_t size) {
  at::DimVector sizes(x.sizes());
  sizes.back() = size;
  return sizes;
}

// Panels, shared with the Matrix that they come from.
struct SavedMatrix : torch::CustomClassHolder {
  explicit SavedMatrix(const Matrix& value) : matrix(value) {}
  Matrix matrix;
};

struct Product : torch::autograd::Function<Product> {
  // leaf: the weight's, for the graph alone.
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor&,
                        const c10::intrusive_ptr<SavedMatrix>& weight, bool round_bf16) {
    context->save_for_backward({x});
    context->saved_data["weight"] = c10::IValue::make_capsule(weight);
    Tensor y = at::empty(with_last(x, outputs(weight->matrix)), at::kFloat);
    multiply_groups(rows_of(x), weight->matrix, false, round_bf16, y.mutable_data_ptr<float>());
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = c10::static_intrusive_pointer_cast<SavedMatrix>(context->saved_data["weight"].toCapsule());
    const Tensor x = context->get_saved_variables()[0];
    const RowsOf dy = rows_of(gradients[0]);
    Tensor dx, dw;
    if (context->needs_input_grad(0)) {
      dx = at::empty(x.sizes(), at::kFloat);
      multiply_groups(dy, saved->matrix, true, false, dx.mutable_data_ptr<float>());
    }
    if (context->needs_input_grad(1)) dw = weight_gradient(dy, rows_of(x), saved->matrix);
    return {dx, dw, Tensor(), Tensor()};
  }
};

bool on_panels(const Tensor& x, const Matrix& weight) { return weight.packed() && has_cpu_kernel(x); }

bool learning(const Tensor& x, const Matrix& weight) {
  return at::GradMode::is_enabled() &&
         (x.requires_grad() || (weight.leaf().defined() && weight.leaf().requires_grad()));
}

Tensor product(const Tensor& x, const Matrix& weight, bool round_bf16) {
  if (learning(x, weight)) {
    return Product::apply(x, weight.learning_leaf(), c10::make_intrusive<SavedMatrix>(weight), round_bf16);
  }
  Tensor y = tensor::empty(with_last(x, outputs(weight)));
  multiply_groups(rows_of(x), weight, false, round_bf16, y.mutable_data_ptr<float>());
  return y;
}

}  // namespace

Tensor linear(const Tensor& x, const Matrix& weight, Rounding rounding) {
  CHECK(weight.defined() && weight.shape().stack == 0);
  CHECK(x.dim() >= 1 && x.size(-1) == weight.shape().k, "{} columns, the matrix has {}", x.size(-1), weight.shape().k);
  if (!on_panels(x, weight)) return reference::linear(x, weight.values().to(x.scalar_type()), rounding);
  return product(x, weight, rounding == Rounding::bf16);
}

Tensor linear_heads(const Tensor& x, const Matrix& weight, int64_t num_heads, Rounding rounding) {
  CHECK(x.dim() == 2 && weight.defined() && weight.shape().stack == 0 && weight.shape().n % num_heads == 0);
  const int64_t dim = weight.shape().n / num_heads;
  if (!on_panels(x, weight) || learning(x, weight)) {
    return linear(x, weight, rounding).view({x.size(0), num_heads, dim});
  }
  CHECK(x.size(1) == weight.shape().k);
  Tensor y = tensor::empty({x.size(0), num_heads, dim});
  multiply_groups(rows_of(x), weight, false, rounding == Rounding::bf16, y.mutable_data_ptr<float>());
  return y;
}

Tensor grouped_linear(const Tensor& x, const Matrix& weight, Rounding rounding) {
  CHECK(weight.defined() && weight.shape().stack >= 1);
  const int64_t width = weight.shape().stack * weight.shape().k;
  CHECK(x.dim() >= 2 && x.numel() == x.size(0) * width, "{} columns, the stack has {} times {}",
        x.numel() / std::max<int64_t>(1, x.size(0)), weight.shape().stack, weight.shape().k);
  if (x.dim() > 2) {
    if (!on_panels(x, weight) || learning(x, weight) || !x.is_contiguous()) {
      return grouped_linear(x.flatten(1), weight, rounding);
    }
    Tensor y = tensor::empty({x.size(0), outputs(weight)});
    multiply_groups(dense_rows(x, width), weight, false, rounding == Rounding::bf16, y.mutable_data_ptr<float>());
    return y;
  }
  if (!on_panels(x, weight)) return reference::grouped_linear(x, weight.values().to(x.scalar_type()), rounding);
  return product(x, weight, rounding == Rounding::bf16);
}

}  // namespace kernels
