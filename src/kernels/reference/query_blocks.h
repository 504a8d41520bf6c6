// Queries in blocks, as the references of attention and indexer take them: up to 64 queries of one span share the keys
// that are gathered for them, so that memory stays bounded and products are matrix products. Index tensors are built
// from the layout's integers and moved to the device; nothing is read back.
//
// Letters: T tokens, Q blocks, L queries per block, N largest count of entries that a block sees.
#pragma once
#include <vector>

#include "kernels/layout.h"

namespace kernels::reference {

using tensor::Tensor;

struct QueryBlock {
  size_t span = 0;
  int64_t first = 0, last = 0;  // positions of its first and last query
};

struct QueryBlocks {
  std::vector<QueryBlock> blocks;
  int64_t len = 1;     // L
  Tensor token_QL;     // int64, token of each query; past the end of a span: its last token
  Tensor row_T;        // int64, row of each token in [Q * L]
  Tensor position_QL;  // int64

  int64_t size() const { return static_cast<int64_t>(blocks.size()); }  // Q
};

QueryBlocks query_blocks(const Layout& layout, tensor::Device device);

// Which rows of the entries a block sees.
struct BlockEntries {
  int64_t count = 0;   // N; 0: the rest is undefined
  Tensor row_QN;       // int64
  Tensor absent_QN;    // bool: not an entry of the sequence, or not there yet; the row is another's and must not count
  Tensor visible_QLN;  // bool
};

BlockEntries block_entries(const QueryBlocks& blocks, const Layout& layout, const EntryLayout& entries);

// rows[index[..], :], absent ones zero. Differentiable in rows.
Tensor gather_entries(const Tensor& rows, const BlockEntries& entries);

// [T, ..] -> [Q, L, ..] and back.
Tensor to_blocks(const Tensor& values, const QueryBlocks& blocks);
Tensor from_blocks(const Tensor& values, const QueryBlocks& blocks);

// int64, on the device.
Tensor indices(const std::vector<int64_t>& values, tensor::Device device);

}  // namespace kernels::reference
