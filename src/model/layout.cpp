// From spans to the integers of a pass.
#include "model/layout.h"

#include "base/error.h"

namespace model {
namespace {

void check_span(const Config& config, const Span& span, int64_t capacity) {
  if (span.count < 1 || span.start < 0) {
    base::fail(base::Code::invalid_argument, "span of {} tokens at position {}: it needs at least one, from 0 on",
               span.count, span.start);
  }
  const bool cached = capacity > 0;
  if (!cached && span.start != 0) {
    base::fail(base::Code::invalid_argument, "a span that starts at position {} needs a cache of the tokens before",
               span.start);
  }
  const int64_t limit = cached ? capacity : config.max_position_embeddings;
  if (span.start + span.count > limit) {
    base::fail(base::Code::invalid_argument, "a sequence of {} tokens does not fit into {} ({})",
               span.start + span.count, limit,
               cached ? "the engine's max_context" : "the model's max_position_embeddings");
  }
}

void lay_out_entries(const Layout& layout, int64_t ratio, bool overlap, int64_t capacity,
                     kernels::EntryLayout& entries) {
  entries.ratio = ratio;
  entries.overlap = overlap;
  entries.capacity = capacity / ratio;
  entries.num_new = 0;
  entries.first_new_S.clear();
  for (const Span& span : layout.spans) {
    entries.first_new_S.push_back(entries.num_new);
    entries.num_new += entries.end_entry(span) - entries.first_entry(span);
  }
}

}  // namespace

void build_layout(const Config& config, std::span<const Span> spans, int64_t capacity, Layout& layout) {
  if (spans.empty()) base::fail(base::Code::invalid_argument, "a forward pass needs at least one span of tokens");
  layout.spans.assign(spans.begin(), spans.end());
  layout.num_tokens = 0;
  layout.cached = capacity > 0;
  layout.window = config.sliding_window;
  layout.position_T.clear();
  layout.span_T.clear();
  for (size_t s = 0; s < layout.spans.size(); ++s) {
    Span& span = layout.spans[s];
    check_span(config, span, capacity);
    span.first = layout.num_tokens;
    layout.num_tokens += span.count;
    for (int64_t i = 0; i < span.count; ++i) {
      layout.position_T.push_back(static_cast<int32_t>(span.start + i));
      layout.span_T.push_back(static_cast<int32_t>(s));
    }
  }
  for (const LayerKind kind : config.layer_types) {
    if (kind == LayerKind::csa && layout.csa.ratio == 0) layout.csa.ratio = config.csa_ratio;
    if (kind == LayerKind::hca && layout.hca.ratio == 0) layout.hca.ratio = config.hca_ratio;
  }
  if (layout.csa.ratio > 0) lay_out_entries(layout, config.csa_ratio, true, capacity, layout.csa);
  if (layout.hca.ratio > 0) lay_out_entries(layout, config.hca_ratio, false, capacity, layout.hca);
}

Layout make_layout(const Config& config, std::span<const Span> spans, int64_t capacity) {
  Layout layout;
  build_layout(config, spans, capacity, layout);
  return layout;
}

}  // namespace model
