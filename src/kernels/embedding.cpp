// The look-up as an autograd function over the CPU kernel.
#include "kernels/embedding.h"

#include "kernels/cpu/embedding.h"
#include "kernels/dispatch.h"
#include "kernels/reference/embedding.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

cpu::Embedding embedding_of(const Tensor& ids_T, int64_t vocab, int64_t dim, int64_t repeat) {
  return {ids_T.const_data_ptr<int64_t>(), ids_T.size(0), vocab, dim, repeat};
}

Tensor rows(const Tensor& table_VD, const Tensor& ids_T, int64_t repeat) {
  Tensor out = tensor::empty({ids_T.size(0), repeat, table_VD.size(1)});
  cpu::embed(embedding_of(ids_T, table_VD.size(0), table_VD.size(1), repeat), table_VD.const_data_ptr<float>(),
             out.mutable_data_ptr<float>());
  return out;
}

struct Embed : torch::autograd::Function<Embed> {
  static Tensor forward(AutogradContext* context, const Tensor& table_VD, const Tensor& ids_T, int64_t repeat) {
    context->save_for_backward({ids_T});
    context->saved_data["vocab"] = table_VD.size(0);
    return rows(table_VD, ids_T, repeat);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Tensor ids_T = context->get_saved_variables()[0], dout = gradients[0].contiguous();
    const int64_t vocab = context->saved_data["vocab"].toInt();
    Tensor dtable = at::empty({vocab, dout.size(2)}, at::kFloat);
    cpu::embed_backward(embedding_of(ids_T, vocab, dout.size(2), dout.size(1)), dout.const_data_ptr<float>(),
                        dtable.mutable_data_ptr<float>());
    return {dtable, {}, {}};
  }
};

}  // namespace

Tensor embed(const Tensor& table_VD, const Tensor& ids_T, int64_t repeat) {
  CHECK(table_VD.dim() == 2 && ids_T.dim() == 1 && ids_T.scalar_type() == at::kLong && repeat >= 1);
  if (!has_cpu_kernel(table_VD)) return reference::embed(table_VD, ids_T, repeat);
  const Tensor table = table_VD.contiguous(), ids = ids_T.contiguous();
  if (at::GradMode::is_enabled() && table_VD.requires_grad()) return Embed::apply(table, ids, repeat);
  return rows(table, ids, repeat);
}

}  // namespace kernels
