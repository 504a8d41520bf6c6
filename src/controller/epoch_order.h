// Random access into the order of data::DataOrder: the row with number n, counted over all epochs. A position in the
// data is then one number, which the collector may also set back.
#pragma once
#include <cstdint>

#include "data/data_order.h"

namespace controller {

// Used by one thread at a time. Walking forward is cheap; a jump orders its epoch anew.
class EpochOrder {
 public:
  // size: rows of an epoch, at least 1.
  EpochOrder(int64_t size, uint64_t seed, bool shuffle);

  int64_t row(int64_t n);  // n >= 0; in [0, size)
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
  data::DataOrder order_;
  int64_t next_ = 0;  // the number that order_ gives next
};

}  // namespace controller
