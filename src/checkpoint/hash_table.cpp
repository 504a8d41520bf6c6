// Checking by sorting each row.
#include "checkpoint/hash_table.h"

#include "base/error.h"
#include "tensor/text.h"

namespace checkpoint {

using tensor::Tensor;

void check_hash_table(const Tensor& tid2eid, int64_t first, int64_t num_experts, const std::string& place) {
  const Tensor sorted = std::get<0>(tid2eid.sort(-1));
  const Tensor in_range = ((sorted >= 0) & (sorted < num_experts)).all(-1);
  const Tensor distinct = (sorted.slice(-1, 1) != sorted.slice(-1, 0, -1)).all(-1);
  const Tensor bad = (in_range & distinct).logical_not().nonzero();
  if (bad.size(0) == 0) return;
  const int64_t row = bad[0].item<int64_t>();
  std::vector<int64_t> experts;
  for (int64_t i = 0; i < tid2eid.size(1); ++i) experts.push_back(tid2eid[row][i].item<int64_t>());
  base::fail(base::Code::corruption,
             "{}: token {} goes to experts {}; they should be different and from 0 to {} ({} of {} tokens are wrong)",
             place, first + row, tensor::shape_text(experts), num_experts - 1, bad.size(0), tid2eid.size(0));
}

}  // namespace checkpoint
