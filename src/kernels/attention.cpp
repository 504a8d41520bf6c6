// Attention as an autograd function over the CPU kernels.
#include "kernels/attention.h"

#include <algorithm>

#include "kernels/cpu/attention.h"
#include "kernels/dispatch.h"
#include "kernels/given.h"
#include "kernels/reference/attention.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Where the keys of a pass lie; kept until backward.
struct KeyLayout : torch::CustomClassHolder {
  std::vector<cpu::AttentionSpan> spans;
  std::vector<int32_t> span_T;
  int64_t window = 0, ratio = 0;
  double scale = 1;
};

struct Operands {
  Tensor query_THK, kv_TK, ring, entries, chosen_TA, sink_H;
};

void fill_spans(const Layout& layout, const EntryLayout* entries, std::vector<cpu::AttentionSpan>& spans) {
  spans.clear();
  for (size_t s = 0; s < layout.spans.size(); ++s) {
    const Span& span = layout.spans[s];
    cpu::AttentionSpan out{span.start, span.count, span.first, 0, 0};
    if (layout.cached) out.ring_row = span.slot * layout.window;
    if (entries != nullptr) out.entry_row = layout.cached ? span.slot * entries->capacity : entries->first_new_S[s];
    spans.push_back(out);
  }
}

cpu::AttentionInput input_of(const Operands& of, std::span<const cpu::AttentionSpan> spans, const int32_t* span_T) {
  cpu::AttentionInput input;
  input.query_THK = of.query_THK.const_data_ptr<float>();
  input.kv_TK = of.kv_TK.const_data_ptr<float>();
  if (of.ring.defined()) input.ring = of.ring.const_data_ptr<float>();
  if (of.entries.defined()) input.entries = of.entries.const_data_ptr<float>();
  if (of.chosen_TA.defined()) {
    input.chosen_TA = of.chosen_TA.const_data_ptr<int32_t>();
    input.num_chosen = of.chosen_TA.size(1);
  }
  input.sink_H = of.sink_H.const_data_ptr<float>();
  input.spans = spans;
  input.span_T = span_T;
  input.num_tokens = of.query_THK.size(0);
  input.num_heads = of.query_THK.size(1);
  input.head_dim = of.query_THK.size(2);
  return input;
}

struct Attend : torch::autograd::Function<Attend> {
  static Tensor forward(AutogradContext* context, const Tensor& query, const Tensor& kv,
                        const std::optional<Tensor>& given_entries, const Tensor& sink,
                        const std::optional<Tensor>& given_chosen, const c10::intrusive_ptr<KeyLayout>& keys,
                        bool round_bf16) {
    const Tensor entries = given_entries.value_or(Tensor()), chosen = given_chosen.value_or(Tensor());
    cpu::AttentionInput input =
        input_of({query, kv, Tensor(), entries, chosen, sink}, keys->spans, keys->span_T.data());
    input.window = keys->window;
    input.ratio = keys->ratio;
    input.scale = static_cast<float>(keys->scale);
    Tensor out = at::empty_like(query);
    const Tensor statistics = at::empty({2, query.size(0), query.size(1)}, query.options());
    cpu::attend(input, round_bf16, out.mutable_data_ptr<float>(), rows_of(statistics));
    context->save_for_backward({query, kv, entries, sink, chosen, statistics});
    context->saved_data["keys"] = c10::IValue::make_capsule(keys);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &query = saved[0], &kv = saved[1], &entries = saved[2], &sink = saved[3];
    const auto capsule = context->saved_data["keys"].toCapsule();
    const auto& keys = static_cast<const KeyLayout&>(*capsule);
    cpu::AttentionInput input =
        input_of({query, kv, Tensor(), entries, saved[4], sink}, keys.spans, keys.span_T.data());
    input.window = keys.window;
    input.ratio = keys.ratio;
    input.scale = static_cast<float>(keys.scale);
    const Tensor dout = gradients[0].contiguous();
    Tensor dquery = at::empty_like(query), dkv = at::empty_like(kv), dsink = at::empty_like(sink), dentries;
    cpu::AttentionGradients out{dquery.mutable_data_ptr<float>(), dkv.mutable_data_ptr<float>(), nullptr,
                                dsink.mutable_data_ptr<float>(), 0};
    if (entries.defined()) {
      dentries = at::empty_like(entries);
      out.dentries_BK = dentries.mutable_data_ptr<float>();
      out.num_entries = entries.size(0);
    }
    cpu::attend_backward(input, rows_of(saved[5]), dout.const_data_ptr<float>(), out);
    return {dquery, dkv, dentries, dsink, {}, {}, {}};
  }

 private:
  static cpu::AttentionStatistics rows_of(const Tensor& statistics) {
    auto* const data = const_cast<float*>(statistics.const_data_ptr<float>());
    return {data, data + statistics.numel() / 2};
  }
};

bool needs_gradient(const Tensor& x) { return at::GradMode::is_enabled() && x.defined() && x.requires_grad(); }

void check_rows(const Tensor& rows, int64_t dim, int64_t needed, const char* name) {
  CHECK(rows.defined() && rows.dim() >= 2 && rows.size(-1) == dim && rows.numel() >= needed * dim,
        "{}: {} values, {} rows of {} needed", name, rows.defined() ? rows.numel() : 0, needed, dim);
}

// Returns whether a token sees entries.
bool check_entries(const AttentionKeys& keys, const Layout& layout, int64_t dim) {
  if (keys.entry_layout == nullptr) return false;
  const EntryLayout& entries = *keys.entry_layout;
  CHECK(entries.ratio > 0 && entries.first_new_S.size() == layout.spans.size());
  int64_t rows = 0;
  for (size_t s = 0; s < layout.spans.size(); ++s) {
    const Span& span = layout.spans[s];
    const int64_t visible = entries.end_entry(span);
    if (visible == 0) continue;
    CHECK(!layout.cached || visible <= entries.capacity, "{} entries, room for {}", visible, entries.capacity);
    rows = std::max(rows, (layout.cached ? span.slot * entries.capacity : entries.first_new_S[s]) + visible);
  }
  if (rows == 0) return false;
  check_rows(keys.entries_BK, dim, rows, "entries");
  if (keys.chosen_TA.defined()) {
    CHECK(keys.chosen_TA.dim() == 2 && keys.chosen_TA.size(0) == layout.num_tokens &&
          keys.chosen_TA.scalar_type() == at::kInt);
  }
  return true;
}

void check_keys(const Tensor& query_THK, const AttentionKeys& keys, const Tensor& sink_H, const Layout& layout) {
  CHECK(query_THK.dim() == 3 && query_THK.size(0) == layout.num_tokens, "{} rows, {} tokens", query_THK.size(0),
        layout.num_tokens);
  const int64_t dim = query_THK.size(2);
  CHECK(keys.kv_TK.dim() == 2 && keys.kv_TK.size(0) == layout.num_tokens && keys.kv_TK.size(1) == dim);
  CHECK(sink_H.dim() == 1 && sink_H.size(0) == query_THK.size(1));
  CHECK(layout.window >= 1 && static_cast<int64_t>(layout.span_T.size()) == layout.num_tokens);
  for (const Span& span : layout.spans) {
    CHECK(layout.cached || span.start == 0, "start {} without a cache", span.start);
    if (span.start > 0) check_rows(keys.ring_SXK, dim, (span.slot + 1) * layout.window, "ring");
  }
}

Tensor with_gradient(const Operands& of, double scale, const Layout& layout, const EntryLayout* entries,
                     bool round_bf16) {
  CHECK(!layout.cached, "attention over a cache has no gradient");
  auto keys = c10::make_intrusive<KeyLayout>();
  fill_spans(layout, entries, keys->spans);
  keys->span_T = layout.span_T;
  keys->window = layout.window;
  keys->ratio = entries != nullptr ? entries->ratio : 0;
  keys->scale = scale;
  return Attend::apply(of.query_THK, of.kv_TK, given(of.entries), of.sink_H, given(of.chosen_TA), keys, round_bf16);
}

}  // namespace

Tensor attend(const Tensor& query_THK, const AttentionKeys& keys, const Tensor& sink_H, double scale,
              const Layout& layout, Rounding rounding) {
  check_keys(query_THK, keys, sink_H, layout);
  const EntryLayout* const entries = check_entries(keys, layout, query_THK.size(2)) ? keys.entry_layout : nullptr;
  if (!has_cpu_kernel(query_THK)) return reference::attend(query_THK, keys, sink_H, scale, layout, rounding);
  const auto dense = [](const Tensor& x) { return x.defined() ? x.contiguous() : x; };
  const Operands of{query_THK.contiguous(),
                    keys.kv_TK.contiguous(),
                    keys.ring_SXK,
                    entries != nullptr ? dense(keys.entries_BK) : Tensor(),
                    entries != nullptr ? dense(keys.chosen_TA) : Tensor(),
                    sink_H.contiguous()};
  if (needs_gradient(of.query_THK) || needs_gradient(of.kv_TK) || needs_gradient(of.entries) ||
      needs_gradient(of.sink_H)) {
    return with_gradient(of, scale, layout, entries, rounding == Rounding::bf16);
  }
  thread_local std::vector<cpu::AttentionSpan> spans;
  fill_spans(layout, entries, spans);
  cpu::AttentionInput input = input_of(of, spans, layout.span_T.data());
  input.window = layout.window;
  input.ratio = entries != nullptr ? entries->ratio : 0;
  input.scale = static_cast<float>(scale);
  Tensor out = tensor::empty(of.query_THK.sizes());
  cpu::attend(input, rounding == Rounding::bf16, out.mutable_data_ptr<float>(), {});
  return out;
}

void keep_window(const Tensor& kv_TK, const Layout& layout, Tensor& ring_SXK) {
  CHECK(kv_TK.dim() == 2 && kv_TK.size(0) == layout.num_tokens && ring_SXK.is_contiguous());
  for (const Span& span : layout.spans) check_rows(ring_SXK, kv_TK.size(1), (span.slot + 1) * layout.window, "ring");
  if (!has_cpu_kernel(kv_TK)) return reference::keep_window(kv_TK, layout, ring_SXK);
  const Tensor kv = kv_TK.contiguous();
  thread_local std::vector<cpu::AttentionSpan> spans;
  fill_spans(layout, nullptr, spans);
  cpu::keep_window(kv.const_data_ptr<float>(), spans, layout.window, kv.size(1), ring_SXK.mutable_data_ptr<float>());
}

}  // namespace kernels
