// A graph node that holds an input and a function.
#include "model/recompute.h"
#include "tensor/autograd.h"

#include <torch/csrc/autograd/functions/utils.h>

namespace model {
namespace {
using tensor::Tensor;
using torch::autograd::variable_list;

class RecomputeNode : public torch::autograd::Node {
 public:
  RecomputeNode(std::function<Tensor(const Tensor&)> run, Tensor input)
      : run_(std::move(run)), input_(std::move(input)) {}

  variable_list apply(variable_list&& grads) override {
    const at::AutoGradMode with_grad(true);
    Tensor input = input_.detach().requires_grad_();
    const Tensor output = run_(input);
    torch::autograd::backward({output}, {grads[0]});
    return {input.grad()};
  }
  void release_variables() override { input_.reset(); }

 private:
  std::function<Tensor(const Tensor&)> run_;
  Tensor input_;
};

}  // namespace

Tensor with_recompute(const std::function<Tensor(const Tensor&)>& run, const Tensor& input) {
  if (!at::GradMode::is_enabled()) return run(input);
  Tensor output;
  {
    const at::NoGradGuard no_grad;
    output = run(input.detach());
  }
  const c10::intrusive_ptr<torch::autograd::Node> node = c10::make_intrusive<RecomputeNode>(run, input.detach());
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace model
