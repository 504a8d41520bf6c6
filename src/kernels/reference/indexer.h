// The definition of kernels/indexer.h by tensor operations: any device, f32 and f64.
#pragma once
#include "kernels/indexer.h"

namespace kernels::reference {

Tensor choose_entries(const IndexerInput& input, int64_t topk, const Layout& layout, const EntryLayout& entries);

}  // namespace kernels::reference
