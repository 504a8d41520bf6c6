// Pooling as an autograd function over the CPU kernels; norm, turn and grid by the kernels of rows.
#include "kernels/compressor.h"

#include <algorithm>

#include "kernels/cpu/compressor.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simulate.h"
#include "kernels/dispatch.h"
#include "kernels/reference/compressor.h"
#include "kernels/rope.h"
#include "kernels/simulate.h"
#include "tensor/autograd.h"
#include "tensor/recycle.h"

namespace kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Which rows a pass pools; kept until backward.
struct PoolLayout : torch::CustomClassHolder {
  std::vector<cpu::PoolSpan> spans;
  int64_t ratio = 0, num_new = 0;
  bool overlap = false;
};

void fill_spans(const Layout& layout, const EntryLayout& entries, std::vector<cpu::PoolSpan>& spans) {
  spans.clear();
  for (size_t s = 0; s < layout.spans.size(); ++s) {
    const Span& span = layout.spans[s];
    spans.push_back(
        {span.start, span.count, span.first, layout.cached ? span.slot * entries.rows() : 0, entries.first_new_S[s]});
  }
}

cpu::PoolInput input_of(const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape,
                        std::span<const cpu::PoolSpan> spans, bool overlap) {
  cpu::PoolInput input;
  input.kv_TC = kv_TC.const_data_ptr<float>();
  input.score_TC = score_TC.const_data_ptr<float>();
  input.ape = ape.const_data_ptr<float>();
  input.spans = spans;
  input.ratio = ape.size(0);
  input.dim = overlap ? ape.size(1) / 2 : ape.size(1);
  input.overlap = overlap;
  return input;
}

struct Pool : torch::autograd::Function<Pool> {
  static Tensor forward(AutogradContext* context, const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape,
                        const c10::intrusive_ptr<PoolLayout>& layout, bool round_bf16) {
    const cpu::PoolInput input = input_of(kv_TC, score_TC, ape, layout->spans, layout->overlap);
    Tensor out = at::empty({layout->num_new, input.dim}, kv_TC.options());
    cpu::pool_rows(input, round_bf16, out.mutable_data_ptr<float>());
    context->save_for_backward({kv_TC, score_TC, ape});
    context->saved_data["layout"] = c10::IValue::make_capsule(layout);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto capsule = context->saved_data["layout"].toCapsule();
    const auto& layout = static_cast<const PoolLayout&>(*capsule);
    const Tensor dout = gradients[0].contiguous();
    Tensor dkv = at::empty_like(saved[0]), dscore = at::empty_like(saved[1]), dape = at::empty_like(saved[2]);
    cpu::pool_rows_backward(
        input_of(saved[0], saved[1], saved[2], layout.spans, layout.overlap), dout.const_data_ptr<float>(),
        {dkv.mutable_data_ptr<float>(), dscore.mutable_data_ptr<float>(), dape.mutable_data_ptr<float>(), dkv.size(0)});
    return {dkv, dscore, dape, {}, {}};
  }
};

bool needs_gradient(const Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

// The position that each new entry is turned to: the first of its own block.
void fill_positions(const Layout& layout, const EntryLayout& entries, std::vector<int32_t>& position_B) {
  position_B.clear();
  for (const Span& span : layout.spans) {
    for (int64_t w = entries.first_entry(span); w < entries.end_entry(span); ++w)
      position_B.push_back(static_cast<int32_t>(w * entries.ratio));
  }
}

// Entries that training follows, from rows of this pass alone.
Tensor with_gradient(const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape, const Tensor& norm_weight,
                     const CompressorOptions& options, const Layout& layout, const EntryLayout& entries,
                     const RopeTable& table) {
  auto pooled = c10::make_intrusive<PoolLayout>();
  fill_spans(layout, entries, pooled->spans);
  pooled->ratio = entries.ratio;
  pooled->num_new = entries.num_new;
  pooled->overlap = entries.overlap;
  const Tensor pooled_BK = Pool::apply(kv_TC, score_TC, ape, pooled, options.rounding == Rounding::bf16);
  Layout first_tokens;
  fill_positions(layout, entries, first_tokens.position_T);
  first_tokens.num_tokens = entries.num_new;
  const Tensor rows = kv_rows(pooled_BK, norm_weight,
                              {options.eps, options.rounding, options.grid == EntryGrid::kv_e4m3}, first_tokens, table);
  return options.grid == EntryGrid::index_e2m1 ? hadamard_e2m1(rows) : rows;
}

// Norm, turn and grid of pooled rows.
void finish_rows(const float* pooled_BK, const Tensor& norm_weight, const CompressorOptions& options,
                 const RopeTable& table, const std::vector<int32_t>& position_B, float* out_BK) {
  const auto num_rows = static_cast<int64_t>(position_B.size()), dim = norm_weight.size(0);
  cpu::NormRows rows;
  rows.x = pooled_BK;
  rows.weight = norm_weight.const_data_ptr<float>();
  rows.rows = num_rows;
  rows.k = dim;
  rows.eps = static_cast<float>(options.eps);
  rows.round_bf16 = options.rounding == Rounding::bf16;
  rows.simulated = options.grid == EntryGrid::kv_e4m3 ? 64 : 0;
  rows.turn.cos = table.cos_PR.const_data_ptr<float>();
  rows.turn.sin = table.sin_PR.const_data_ptr<float>();
  rows.turn.position = position_B.data();
  rows.turn.pairs = table.cos_PR.size(1);
  cpu::rms_norm(rows, out_BK);
  if (options.grid == EntryGrid::index_e2m1) cpu::hadamard_e2m1(out_BK, out_BK, num_rows, dim);
}

// New entry b of the pass goes to its row of the cache.
void store_entries(const float* entries_BK, const Layout& layout, const EntryLayout& entries, Tensor& stored_SNK) {
  const int64_t dim = stored_SNK.size(2);
  float* const stored = stored_SNK.mutable_data_ptr<float>();
  for (size_t s = 0; s < layout.spans.size(); ++s) {
    const Span& span = layout.spans[s];
    const int64_t first = entries.first_entry(span), count = entries.end_entry(span) - first;
    std::copy_n(entries_BK + entries.first_new_S[s] * dim, count * dim,
                stored + (span.slot * entries.capacity + first) * dim);
  }
}

Tensor without_gradient(const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape, const Tensor& norm_weight,
                        const CompressorOptions& options, const Layout& layout, const EntryLayout& entries,
                        const RopeTable& table, CompressorState* state) {
  thread_local std::vector<cpu::PoolSpan> spans;
  thread_local std::vector<int32_t> position_B;
  thread_local cpu::Scratch pooled;
  fill_spans(layout, entries, spans);
  cpu::PoolInput input = input_of(kv_TC, score_TC, ape, spans, entries.overlap);
  if (state != nullptr) {
    input.state_kv = state->kv_SPC.mutable_data_ptr<float>();
    input.state_score = state->score_SPC.mutable_data_ptr<float>();
  }
  Tensor out;
  if (entries.num_new > 0) {
    float* const pooled_BK = pooled.floats(entries.num_new * input.dim);
    cpu::pool_rows(input, options.rounding == Rounding::bf16, pooled_BK);
    fill_positions(layout, entries, position_B);
    out = tensor::empty({entries.num_new, input.dim});
    finish_rows(pooled_BK, norm_weight, options, table, position_B, out.mutable_data_ptr<float>());
    if (state != nullptr) store_entries(out.const_data_ptr<float>(), layout, entries, state->entries_SNK);
  }
  if (state != nullptr) cpu::keep_rows(input);
  return out;
}

void check_state(const CompressorState& state, const Layout& layout, const EntryLayout& entries, int64_t dim,
                 int64_t channels) {
  for (const Tensor* rows : {&state.kv_SPC, &state.score_SPC}) {
    CHECK(rows->dim() == 3 && rows->size(1) == entries.rows() && rows->size(2) == channels && rows->is_contiguous());
  }
  const Tensor& stored = state.entries_SNK;
  CHECK(stored.dim() == 3 && stored.size(1) == entries.capacity && stored.size(2) == dim && stored.is_contiguous());
  for (const Span& span : layout.spans) {
    CHECK(span.slot >= 0 && span.slot < std::min(stored.size(0), state.kv_SPC.size(0)), "slot {}", span.slot);
    CHECK(entries.end_entry(span) <= entries.capacity, "{} entries, room for {}", entries.end_entry(span),
          entries.capacity);
  }
}

void check_rows(const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape, const Tensor& norm_weight,
                const Layout& layout, const EntryLayout& entries, const RopeTable& table) {
  CHECK(norm_weight.dim() == 1 && entries.ratio > 0 && entries.first_new_S.size() == layout.spans.size());
  const int64_t dim = norm_weight.size(0), channels = entries.overlap ? 2 * dim : dim;
  CHECK(kv_TC.dim() == 2 && kv_TC.size(0) == layout.num_tokens && kv_TC.size(1) == channels, "{} tokens, {} channels",
        layout.num_tokens, channels);
  CHECK(score_TC.sizes() == kv_TC.sizes());
  CHECK(ape.dim() == 2 && ape.size(0) == entries.ratio && ape.size(1) == channels);
  CHECK(table.cos_PR.dim() == 2 && table.cos_PR.sizes() == table.sin_PR.sizes() && table.cos_PR.is_contiguous() &&
        table.sin_PR.is_contiguous() && table.cos_PR.scalar_type() == at::kFloat && 2 * table.cos_PR.size(1) <= dim);
  int64_t positions = 0;
  for (const Span& span : layout.spans) {
    positions = std::max(positions, span.start + span.count);
    CHECK(layout.cached || span.start == 0, "start {} without a cache", span.start);
  }
  CHECK(entries.num_new == 0 || positions <= table.cos_PR.size(0), "position {} of {}", positions - 1,
        table.cos_PR.size(0));
}

}  // namespace

Tensor pool_entries(const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape, const Tensor& norm_weight,
                    const CompressorOptions& options, const Layout& layout, const EntryLayout& entries,
                    const RopeTable& table, CompressorState* state) {
  check_rows(kv_TC, score_TC, ape, norm_weight, layout, entries, table);
  CHECK(layout.cached == (state != nullptr));
  if (state != nullptr) check_state(*state, layout, entries, norm_weight.size(0), kv_TC.size(1));
  if (!has_cpu_kernel(kv_TC))
    return reference::pool_entries(kv_TC, score_TC, ape, norm_weight, options, layout, entries, table, state);
  const Tensor kv = kv_TC.contiguous(), score = score_TC.contiguous(), bias = ape.contiguous(),
               weight = norm_weight.contiguous();
  if (!needs_gradient(kv) && !needs_gradient(score) && !needs_gradient(bias) && !needs_gradient(weight))
    return without_gradient(kv, score, bias, weight, options, layout, entries, table, state);
  CHECK(state == nullptr, "pooling with a state has no gradient");
  if (entries.num_new == 0) return {};
  return with_gradient(kv, score, bias, weight, options, layout, entries, table);
}

}  // namespace kernels
