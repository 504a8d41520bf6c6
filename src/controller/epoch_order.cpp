// Sequential use reuses the order at hand; anything else builds it again.
#include "controller/epoch_order.h"

#include <utility>

namespace controller {

EpochOrder::EpochOrder(int64_t size, uint64_t seed, bool shuffle)
    : size_(size), seed_(seed), shuffle_(shuffle), order_(size, seed, shuffle) {}

int64_t EpochOrder::row(int64_t n) {
  if (n != std::exchange(next_, n + 1)) order_ = data::DataOrder(size_, seed_, shuffle_, {n / size_, n % size_});
  return order_.next();
}

}  // namespace controller
