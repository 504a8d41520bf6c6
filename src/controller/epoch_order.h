// The order in which rows are used, epoch after epoch. Row `n` of a run is a pure function of (seed, size, n), so a
// position in the data is one number and a resumed run goes on where it stood.
#pragma once
#include <cstdint>
#include <vector>

namespace controller {

// Used by one thread at a time.
class EpochOrder {
 public:
  // size: rows of an epoch, at least 1. Without shuffle each epoch is in file order.
  EpochOrder(int64_t size, uint64_t seed, bool shuffle);

  // The row with number n >= 0, counted over all epochs; in [0, size). Each epoch has each row once.
  int64_t row(int64_t n);
  int64_t size() const { return size_; }

 private:
  void shuffle(int64_t epoch);

  int64_t size_;
  uint64_t seed_;
  bool shuffled_;
  int64_t epoch_ = -1;  // of order_
  std::vector<int64_t> order_;
};

}  // namespace controller
