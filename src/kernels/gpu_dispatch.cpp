// A kernel's results as a node of the graph whose backward is the reference's.
#include "kernels/gpu_dispatch.h"

#include <algorithm>

#include "tensor/autograd.h"

namespace kernels {
namespace {

using tensor::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Definition : torch::CustomClassHolder {
  explicit Definition(Operation operation) : reference(std::move(operation)) {}
  Operation reference;
};

struct KernelNode : torch::autograd::Function<KernelNode> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const Operation& kernel,
                               const c10::intrusive_ptr<Definition>& definition) {
    context->save_for_backward(inputs.vec());
    context->saved_data["definition"] = c10::IValue::make_capsule(definition);
    return kernel(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto definition =
        c10::static_intrusive_pointer_cast<Definition>(context->saved_data["definition"].toCapsule());
    variable_list leaves = context->get_saved_variables(), wanted;
    for (size_t i = 0; i < leaves.size(); ++i) {
      leaves[i] = leaves[i].detach();
      if (context->needs_input_grad(i)) wanted.push_back(leaves[i].requires_grad_());
    }
    const at::AutoGradMode with_grad(true);
    const variable_list of =
        torch::autograd::grad(definition->reference(leaves), wanted, gradients,
                              /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
    variable_list result(leaves.size() + 2);  // the last two: of kernel and definition
    size_t next = 0;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (context->needs_input_grad(i)) result[i] = of[next++];
    }
    return result;
  }
};

}  // namespace

variable_list with_reference_gradient(const variable_list& inputs, const Operation& kernel,
                                      const Operation& reference) {
  variable_list dense;
  for (const Tensor& input : inputs) dense.push_back(input.contiguous());
  const auto learns = [](const Tensor& x) { return x.requires_grad(); };
  if (!at::GradMode::is_enabled() || std::none_of(dense.begin(), dense.end(), learns)) return kernel(dense);
  return KernelNode::apply(at::TensorList(dense), kernel, c10::make_intrusive<Definition>(reference));
}

}  // namespace kernels
