// Blocks from spans.
#include "kernels/reference/query_blocks.h"

#include <algorithm>

namespace kernels::reference {
namespace {

// Cost of attention with blocks of `len` queries, in keys times (queries + a constant for gathering the keys).
int64_t blocks_cost(const Layout& layout, int64_t len) {
  constexpr int64_t kGather = 8;
  int64_t blocks = 0;
  for (const Span& span : layout.spans) blocks += (span.count + len - 1) / len;
  return blocks * (len + kGather) * (len + layout.window - 1);
}

int64_t best_block_len(const Layout& layout) {
  int64_t longest = 1;
  for (const Span& span : layout.spans) longest = std::max(longest, span.count);
  const int64_t limit = std::min<int64_t>(longest, 64);
  int64_t best = 1;
  for (int64_t len = 2; len <= limit; len = len < limit ? std::min(2 * len, limit) : limit + 1) {
    if (blocks_cost(layout, len) < blocks_cost(layout, best)) best = len;
  }
  return best;
}

}  // namespace

Tensor indices(const std::vector<int64_t>& values, tensor::Device device) {
  return at::tensor(values, at::kLong).to(device);
}

QueryBlocks query_blocks(const Layout& layout, tensor::Device device) {
  QueryBlocks out;
  out.len = best_block_len(layout);
  std::vector<int64_t> token, position, row(static_cast<size_t>(layout.num_tokens));
  for (size_t s = 0; s < layout.spans.size(); ++s) {
    const Span& span = layout.spans[s];
    for (int64_t begin = 0; begin < span.count; begin += out.len) {
      for (int64_t l = 0; l < out.len; ++l) {
        const int64_t i = std::min(begin + l, span.count - 1);
        if (begin + l < span.count) row[static_cast<size_t>(span.first + i)] = static_cast<int64_t>(token.size());
        token.push_back(span.first + i);
        position.push_back(span.start + i);
      }
      out.blocks.push_back({s, span.start + begin, position.back()});
    }
  }
  out.token_QL = indices(token, device).view({-1, out.len});
  out.row_T = indices(row, device);
  out.position_QL = indices(position, device).view({-1, out.len});
  return out;
}

BlockEntries block_entries(const QueryBlocks& blocks, const Layout& layout, const EntryLayout& entries) {
  BlockEntries out;
  std::vector<int64_t> base, count;
  for (const QueryBlock& block : blocks.blocks) {
    const Span& span = layout.spans[block.span];
    base.push_back(layout.cached ? span.slot * entries.capacity : entries.first_new_S[block.span]);
    count.push_back((block.last + 1) / entries.ratio);
    out.count = std::max(out.count, count.back());
  }
  if (out.count == 0) return out;
  const auto device = blocks.position_QL.device();
  const Tensor entry_N = at::arange(out.count, blocks.position_QL.options());
  const Tensor base_Q1 = indices(base, device).unsqueeze(1);
  out.absent_QN = entry_N >= indices(count, device).unsqueeze(1);
  out.row_QN = (base_Q1 + entry_N).masked_fill(out.absent_QN, 0);
  out.visible_QLN = entry_N < (blocks.position_QL + 1).floor_divide(entries.ratio).unsqueeze(2);
  return out;
}

Tensor gather_entries(const Tensor& rows, const BlockEntries& entries) {
  return at::embedding(rows, entries.row_QN).masked_fill(entries.absent_QN.unsqueeze(2), 0);
}

// Rows by at::embedding: its gradient is summed in the order of the index.
Tensor to_blocks(const Tensor& values, const QueryBlocks& blocks) {
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = blocks.len;
  shape.insert(shape.begin(), blocks.size());
  return at::embedding(values.flatten(1), blocks.token_QL).view(shape);
}

Tensor from_blocks(const Tensor& values, const QueryBlocks& blocks) {
  std::vector<int64_t> shape = values.sizes().vec();
  shape.erase(shape.begin());
  shape[0] = blocks.row_T.size(0);
  return at::embedding(values.flatten(0, 1).flatten(1), blocks.row_T).view(shape);
}

}  // namespace kernels::reference
