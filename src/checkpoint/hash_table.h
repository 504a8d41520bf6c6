// The experts that a hash-routed layer gives to each token, as files hold them.
#pragma once
#include <cstdint>
#include <string>

#include "tensor/tensor.h"

namespace checkpoint {

// Rows of a tid2eid [N, A], the first of them token `first`: each token's experts must differ and exist.
// Error{corruption} with the place and the first token that is wrong.
void check_hash_table(const tensor::Tensor& tid2eid, int64_t first, int64_t num_experts, const std::string& place);

}  // namespace checkpoint
