// A parameter cut into runs of whole rows, so that what is worked on in memory does not grow with the tensor.
#pragma once
#include <algorithm>
#include <cstdint>

#include "model/weights.h"

namespace checkpoint {

inline constexpr int64_t kPieceValues = int64_t{1} << 19;

inline int64_t num_values(const model::TensorInfo& info) {
  int64_t count = 1;
  for (const int64_t dim : info.shape) count *= dim;
  return count;
}

// see(first row, number of rows), in order, until it returns false; rows of a vector are its elements. Every piece but
// the last is a multiple of 128 rows. Returns whether all were seen.
template <class See>
bool for_each_piece(const model::TensorInfo& info, const See& see) {
  constexpr int64_t kBlock = 128;
  const int64_t rows = info.shape.front(),
                columns = std::max<int64_t>(num_values(info) / std::max<int64_t>(rows, 1), 1);
  const int64_t step = std::max(kPieceValues / columns / kBlock, int64_t{1}) * kBlock;
  for (int64_t first = 0; first < rows; first += step) {
    if (!see(first, std::min(step, rows - first))) return false;
  }
  return true;
}

}  // namespace checkpoint
