// The indexer's choice: checks, and the way to the CPU kernel.
#include "kernels/indexer.h"

#include <algorithm>

#include "kernels/cpu/indexer.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simulate.h"
#include "kernels/dispatch.h"
#include "kernels/reference/indexer.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

void check_input(const IndexerInput& input, int64_t topk, const Layout& layout, const EntryLayout& entries) {
  const int64_t tokens = layout.num_tokens;
  CHECK(input.query_THI.dim() == 3 && input.query_THI.size(0) == tokens, "{} rows, {} tokens", input.query_THI.size(0),
        tokens);
  CHECK(input.weight_TH.dim() == 2 && input.weight_TH.size(0) == tokens &&
        input.weight_TH.size(1) == input.query_THI.size(1));
  CHECK(topk >= 1 && entries.ratio > 0 && entries.first_new_S.size() == layout.spans.size());
  CHECK(static_cast<int64_t>(layout.span_T.size()) == tokens);
  const int64_t dim = input.query_THI.size(2);
  for (size_t s = 0; s < layout.spans.size(); ++s) {
    const Span& span = layout.spans[s];
    const int64_t visible = entries.end_entry(span);
    if (visible == 0) continue;
    const int64_t first = layout.cached ? span.slot * entries.capacity : entries.first_new_S[s];
    CHECK(!layout.cached || visible <= entries.capacity, "{} entries, room for {}", visible, entries.capacity);
    CHECK(input.keys_BI.defined() && input.keys_BI.size(-1) == dim && input.keys_BI.numel() >= (first + visible) * dim,
          "{} key values, {} rows of {} needed", input.keys_BI.defined() ? input.keys_BI.numel() : 0, first + visible,
          dim);
  }
}

// round(scale * weight), [T, H]; valid until the thread's next call.
const float* scaled_weights(const IndexerInput& input) {
  const Tensor weight = input.weight_TH.contiguous();
  const float* const from = weight.const_data_ptr<float>();
  thread_local cpu::Scratch memory;
  float* const to = memory.floats(weight.numel());
  std::transform(from, from + weight.numel(), to,
                 [scale = static_cast<float>(input.scale)](float w) { return w * scale; });
  if (input.rounding == Rounding::bf16) cpu::round_bf16(to, to, weight.numel());
  return to;
}

}  // namespace

Tensor choose_entries(const IndexerInput& input, int64_t topk, const Layout& layout, const EntryLayout& entries) {
  check_input(input, topk, layout, entries);
  if (!has_cpu_kernel(input.query_THI)) return reference::choose_entries(input, topk, layout, entries);
  const at::NoGradGuard no_grad;
  const Tensor query = input.query_THI.contiguous(),
               keys = input.keys_BI.defined() ? input.keys_BI.contiguous() : Tensor();
  thread_local std::vector<cpu::ChoiceSpan> spans;
  spans.clear();
  for (size_t s = 0; s < layout.spans.size(); ++s) {
    const Span& span = layout.spans[s];
    spans.push_back({span.start, span.first, layout.cached ? span.slot * entries.capacity : entries.first_new_S[s]});
  }
  cpu::ChoiceInput choice;
  choice.query_THI = query.const_data_ptr<float>();
  choice.weight_TH = scaled_weights(input);
  if (keys.defined()) choice.keys_BI = keys.const_data_ptr<float>();
  choice.spans = spans;
  choice.span_T = layout.span_T.data();
  choice.num_tokens = layout.num_tokens;
  choice.num_heads = query.size(1);
  choice.dim = query.size(2);
  choice.ratio = entries.ratio;
  choice.topk = topk;
  Tensor chosen = tensor::empty({layout.num_tokens, topk}, at::kInt);
  cpu::choose_entries(choice, chosen.mutable_data_ptr<int32_t>());
  return chosen;
}

}  // namespace kernels
