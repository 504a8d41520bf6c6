// Random initial values. Each tensor draws from its own stream, keyed by seed and name: the values depend neither on
// the machine nor on the order of the visit.
#include <cmath>

#include "base/rng.h"
#include "model/weights.h"

namespace model {
namespace {

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void fill_normal(float* values, int64_t count, uint64_t key, double std) {
  base::Philox random(key);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(std * random.next_normal());
}

// Rows of distinct experts.
void fill_hash_table(int64_t* table, int64_t rows, int64_t per_token, int64_t experts, uint64_t key) {
  base::Philox random(key);
  std::vector<int64_t> ids(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) ids[static_cast<size_t>(e)] = e;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < per_token; ++k) {
      std::swap(ids[static_cast<size_t>(k)],
                ids[static_cast<size_t>(k) + random.next_below(static_cast<uint64_t>(experts - k))]);
      table[row * per_token + k] = ids[static_cast<size_t>(k)];
    }
  }
}

}  // namespace

// Matrices: normal with initializer_range. Norm weights 1; attn_sink, ape, gate bias and the base of the
// hyper-connections 0; their scales 1, as transformers initialises them (spec 3.7). tid2eid: distinct random experts
// per token.
Weights Weights::initialise(const Config& config, uint64_t seed) {
  Weights weights = allocate(config, at::kCPU);
  weights.visit([&](const TensorInfo& info, Tensor& tensor) {
    const uint64_t key = base::derive_seed(seed, info.name);
    if (info.stored_as == StoredAs::i64) {
      fill_hash_table(tensor.data_ptr<int64_t>(), tensor.size(0), tensor.size(1), config.n_routed_experts, key);
    } else if (ends_with(info.name, "norm.weight") || ends_with(info.name, "_scale")) {
      tensor.fill_(1);
    } else if (info.shape.size() < 2 || ends_with(info.name, "ape")) {
      tensor.zero_();
    } else {
      fill_normal(tensor.data_ptr<float>(), tensor.numel(), key, config.initializer_range);
    }
  });
  return weights;
}

}  // namespace model
