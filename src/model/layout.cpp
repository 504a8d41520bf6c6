// From spans to index tensors.
#include "model/layout.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/rope.h"

namespace model {
namespace {
using tensor::Tensor;

Tensor indices(const std::vector<int64_t>& values, tensor::Device device) {
  return at::tensor(values, at::kLong).to(device);
}

// Cost of attention with blocks of `len` queries, in keys times (queries + a constant for gathering the keys).
int64_t blocks_cost(const std::vector<Span>& spans, int64_t len, int64_t window) {
  constexpr int64_t kGather = 8;
  int64_t blocks = 0;
  for (const Span& span : spans) blocks += (span.count + len - 1) / len;
  return blocks * (len + kGather) * (len + window - 1);
}

int64_t best_block_len(const std::vector<Span>& spans, int64_t window) {
  int64_t longest = 1;
  for (const Span& span : spans) longest = std::max(longest, span.count);
  int64_t best = 1;
  const int64_t limit = std::min<int64_t>(longest, 64);
  for (int64_t len = 2; len <= limit; len = len < limit ? std::min(2 * len, limit) : limit + 1) {
    if (blocks_cost(spans, len, window) < blocks_cost(spans, best, window)) best = len;
  }
  return best;
}

// Rows of a pool made of `kept` rows of state per span, then the new rows of all spans; a position before 0 gives
// `absent`.
struct RowPool {
  int64_t kept = 0;    // rows of state per span; 0 without a cache
  int64_t period = 1;  // state row of a position: position mod period
  int64_t num_spans = 0;
  int64_t absent = 0;

  int64_t row(size_t span_index, const Span& span, int64_t first_token, int64_t position) const {
    if (position < 0) return absent;
    if (position >= span.start) return num_spans * kept + first_token + position - span.start;
    return static_cast<int64_t>(span_index) * kept + position % period;
  }
};

class Builder {
 public:
  Builder(const Config& config, std::vector<Span> spans, int64_t capacity, tensor::Device device)
      : config_(config), capacity_(capacity), device_(device) {
    layout_.spans = std::move(spans);
    layout_.cached = capacity > 0;
  }

  Layout build() {
    check_spans();
    tokens();
    blocks();
    const auto uses = [&](LayerKind kind) {
      return std::find(config_.layer_types.begin(), config_.layer_types.end(), kind) != config_.layer_types.end();
    };
    if (uses(LayerKind::csa)) compress(layout_.csa, config_.csa_ratio, true);
    if (uses(LayerKind::hca)) compress(layout_.hca, config_.hca_ratio, false);
    return std::move(layout_);
  }

 private:
  void check_spans() {
    if (layout_.spans.empty())
      base::fail(base::Code::invalid_argument, "a forward pass needs at least one span of tokens");
    for (const Span& span : layout_.spans) {
      if (span.count < 1 || span.start < 0) {
        base::fail(base::Code::invalid_argument, "span of {} tokens at position {}: it needs at least one, from 0 on",
                   span.count, span.start);
      }
      if (!layout_.cached && span.start != 0) {
        base::fail(base::Code::invalid_argument, "a span that starts at position {} needs a cache of the tokens before",
                   span.start);
      }
      const int64_t limit = layout_.cached ? capacity_ : config_.max_position_embeddings;
      if (span.start + span.count > limit) {
        base::fail(base::Code::invalid_argument, "a sequence of {} tokens does not fit into {} ({})",
                   span.start + span.count, limit,
                   layout_.cached ? "the engine's max_context" : "the model's max_position_embeddings");
      }
    }
  }

  void tokens() {
    std::vector<int64_t> slots, ring_from, ring_to;
    std::vector<float> position;
    for (const Span& span : layout_.spans) {
      first_token_.push_back(layout_.num_tokens);
      slots.push_back(span.slot);
      for (int64_t i = 0; i < span.count; ++i) position.push_back(static_cast<float>(span.start + i));
      keep_last(first_token_.size() - 1, config_.sliding_window, ring_from, ring_to);
      layout_.num_tokens += span.count;
    }
    layout_.position_T = at::tensor(position).to(device_);
    layout_.rope_window_T = rotation(config_, false, layout_.position_T);
    layout_.rope_compress_T = rotation(config_, true, layout_.position_T);
    layout_.slot_S = indices(slots, device_);
    layout_.ring_from = indices(ring_from, device_);
    layout_.ring_to = indices(ring_to, device_);
  }

  // With a cache, the last `period` tokens of a span replace the rows of its state at position mod period.
  void keep_last(size_t s, int64_t period, std::vector<int64_t>& from, std::vector<int64_t>& to) const {
    if (!layout_.cached) return;
    const Span& span = layout_.spans[s];
    for (int64_t i = std::max<int64_t>(0, span.count - period); i < span.count; ++i) {
      from.push_back(first_token_[s] + i);
      to.push_back(span.slot * period + (span.start + i) % period);
    }
  }

  void blocks() {
    const int64_t len = best_block_len(layout_.spans, config_.sliding_window), window = config_.sliding_window;
    const int64_t width = len + window - 1;
    RowPool pool{layout_.cached ? window : 0, window, static_cast<int64_t>(layout_.spans.size())};
    std::vector<int64_t> block_token, token_block(static_cast<size_t>(layout_.num_tokens)), keys, first, last;
    for (size_t s = 0; s < layout_.spans.size(); ++s) {
      const Span& span = layout_.spans[s];
      pool.absent = pool.row(s, span, first_token_[s], span.start);  // masked, but read: a row of this sequence
      for (int64_t begin = 0; begin < span.count; begin += len) {
        const auto block = static_cast<int64_t>(first.size());
        first.push_back(span.start + begin);
        last.push_back(span.start + span.count - 1);
        block_span_.push_back(s);
        for (int64_t l = 0; l < len; ++l) {
          const int64_t token = first_token_[s] + std::min(begin + l, span.count - 1);
          block_token.push_back(token);
          if (begin + l < span.count) token_block[static_cast<size_t>(token)] = block * len + l;
        }
        for (int64_t x = 0; x < width; ++x) {
          const int64_t position = std::min(span.start + begin - window + 1 + x, span.start + span.count - 1);
          keys.push_back(pool.row(s, span, first_token_[s], position));
        }
      }
    }
    layout_.block_len = len;
    layout_.num_blocks = static_cast<int64_t>(first.size());
    layout_.block_token_QL = indices(block_token, device_).view({-1, len});
    layout_.token_block_T = indices(token_block, device_);
    layout_.window_QX = indices(keys, device_).view({-1, width});
    const Tensor first_Q = indices(first, device_), last_Q = indices(last, device_);
    const Tensor step_L = at::arange(len, first_Q.options());
    position_QL_ = at::minimum(first_Q.unsqueeze(1) + step_L, last_Q.unsqueeze(1));
    const Tensor key_Q1X = (first_Q.unsqueeze(1) + at::arange(1 - window, len, first_Q.options())).unsqueeze(1);
    const Tensor query_QL1 = position_QL_.unsqueeze(2);
    layout_.in_window_QLX = (key_Q1X >= 0) & (key_Q1X <= query_QL1) & (key_Q1X > query_QL1 - window);
    block_last_ = std::move(last);
    block_first_ = std::move(first);
  }

  void compress(CompressLayout& out, int64_t ratio, bool overlap) {
    out.ratio = ratio;
    out.overlap = overlap;
    const int64_t rows = overlap ? 2 * ratio : ratio, slot_entries = capacity_ / ratio;
    const auto num_spans = static_cast<int64_t>(layout_.spans.size());
    const int64_t kept = layout_.cached ? rows : 0;
    const RowPool pool{kept, rows, num_spans, num_spans * kept + layout_.num_tokens};
    std::vector<int64_t> ape_row, block_rows, entry_slot, from, to, entry_base, reset;
    std::vector<float> position;
    for (size_t s = 0; s < layout_.spans.size(); ++s) {
      const Span& span = layout_.spans[s];
      entry_base.push_back(layout_.cached ? span.slot * slot_entries : out.num_new);
      if (span.start == 0 && slot_entries > 0) reset.push_back(span.slot * slot_entries);
      for (int64_t i = 0; i < span.count; ++i) ape_row.push_back((span.start + i) % ratio);
      for (int64_t w = span.start / ratio; w < (span.start + span.count) / ratio; ++w) {
        for (int64_t p = (w + 1) * ratio - rows; p < (w + 1) * ratio; ++p)
          block_rows.push_back(pool.row(s, span, first_token_[s], p));
        position.push_back(static_cast<float>(w * ratio));
        entry_slot.push_back(span.slot * slot_entries + w);
        ++out.num_new;
      }
      keep_last(s, rows, from, to);
    }
    out.ape_row_T = indices(ape_row, device_);
    out.rows_BP = indices(block_rows, device_).view({-1, rows});
    out.position_B = at::tensor(position, at::kFloat).to(device_);
    out.rope_B = rotation(config_, true, out.position_B);
    out.entry_slot_B = indices(entry_slot, device_);
    out.reset_entries = indices(reset, device_);
    out.state_from = indices(from, device_);
    out.state_to = indices(to, device_);
    visible_entries(out, entry_base);
  }

  void visible_entries(CompressLayout& out, const std::vector<int64_t>& entry_base) {
    std::vector<int64_t> base, count;
    for (size_t b = 0; b < block_span_.size(); ++b) {
      const int64_t last = std::min(block_first_[b] + layout_.block_len - 1, block_last_[b]);
      base.push_back(entry_base[block_span_[b]]);
      count.push_back((last + 1) / out.ratio);
      out.max_entries = std::max(out.max_entries, count.back());
    }
    const Tensor entry_N = at::arange(out.max_entries, position_QL_.options());
    const Tensor count_Q1 = indices(count, device_).unsqueeze(1);
    const Tensor base_Q1 = indices(base, device_).unsqueeze(1);
    out.entries_QN =
        at::where(entry_N < count_Q1, base_Q1 + entry_N, layout_.cached ? base_Q1 : at::zeros_like(base_Q1));
    out.visible_QLN = entry_N < (position_QL_ + 1).floor_divide(out.ratio).unsqueeze(2);
  }

  const Config& config_;
  int64_t capacity_;
  tensor::Device device_;
  Layout layout_;
  std::vector<int64_t> first_token_, block_first_, block_last_;
  std::vector<size_t> block_span_;
  Tensor position_QL_;
};

}  // namespace

Layout Layout::build(const Config& config, std::vector<Span> spans, int64_t capacity, tensor::Device device) {
  return Builder(config, std::move(spans), capacity, device).build();
}

}  // namespace model
