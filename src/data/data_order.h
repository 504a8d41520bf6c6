// In which order the rows of a data set are used: epoch after epoch, each a permutation that depends on seed and epoch
// alone. The place in it is two numbers, so a run that is stopped and resumed uses the same rows in the same order.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace data {

// index rows of this epoch have been taken.
struct DataPosition {
  int64_t epoch = 0, index = 0;
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};
base::Json to_json(const DataPosition& position);
DataPosition data_position_from_json(const base::Json& json, const std::string& where);  // Error{corruption}

// For one thread.
class DataOrder {
 public:
  // num_rows > 0. shuffle = false: file order in every epoch.
  // Error{invalid_argument}: no rows, or a start that such a data set has no place for (another data set than before?).
  DataOrder(int64_t num_rows, uint64_t seed, bool shuffle, DataPosition start = {});

  int64_t next();  // the row at the position, which moves on; at an epoch's end to the next epoch
  std::vector<int64_t> next(int64_t count);  // may span any number of epochs
  DataPosition position() const { return position_; }

 private:
  void fill_order();

  int64_t num_rows_;
  uint64_t seed_;
  bool shuffle_;
  DataPosition position_;
  std::vector<int64_t> order_;  // of epoch position_.epoch
};

}  // namespace data
