// What every kernel of this folder is written in: the dialect of the compiler at hand, lanes, and how rows are shared
// out to blocks. For .cu files and the headers that they alone include.
#pragma once
#include <dialect.h>

#include "kernels/gpu/launch.h"
#include "kernels/gpu/refusal.h"

namespace kernels::gpu {

inline constexpr int kTeam = 16;        // lanes that join their values
inline constexpr int kWholeWaves = 64;  // a block has a multiple of these lanes: whole warps of 32 or waves of 64
inline constexpr int kMostLanes = 256;  // of a block

// run(row) for the rows that fall to this block.
template <class Run>
GPU_FUNCTION void each_row(int64_t rows, const Run& run) {
  for (int64_t row = block_of_grid(); row < rows; row += blocks_of_grid()) run(row);
}

// Puts `kernel`, which shares `rows` out by each_row, into the queue. Nothing is done for no rows.
// Error{unavailable}: the GPU refuses it.
template <class... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), Extent extent, Queue queue, Parameters... parameters) {
  constexpr int64_t kMostBlocks = 1 << 20;
  const bool whole = extent.lanes > 0 && extent.lanes % kWholeWaves == 0 && extent.lanes <= kMostLanes;
  check_sizes(extent.rows >= 0 && whole, name, extent.rows, extent.lanes);
  if (extent.rows == 0) return;
  const auto blocks = static_cast<unsigned>(extent.rows < kMostBlocks ? extent.rows : kMostBlocks);
  const char* const refusal = enqueue(kernel, blocks, static_cast<unsigned>(extent.lanes), queue.handle, parameters...);
  if (refusal != nullptr) refuse_kernel(name, refusal, kChips);
}

}  // namespace kernels::gpu
