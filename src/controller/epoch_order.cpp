#include "controller/epoch_order.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace controller {

EpochOrder::EpochOrder(int64_t size, uint64_t seed, bool shuffle) : size_(size), seed_(seed), shuffled_(shuffle) {
  CHECK(size >= 1);
}

int64_t EpochOrder::row(int64_t n) {
  CHECK(n >= 0);
  if (!shuffled_) return n % size_;
  if (n / size_ != epoch_) shuffle(n / size_);
  return order_[static_cast<size_t>(n % size_)];
}

// Fisher-Yates with the epoch's own stream of random numbers.
void EpochOrder::shuffle(int64_t epoch) {
  epoch_ = epoch;
  order_.resize(static_cast<size_t>(size_));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  base::Philox random(base::derive_seed(seed_, static_cast<uint64_t>(epoch)));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.next_below(i)]);
}

}  // namespace controller
