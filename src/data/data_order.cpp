// Fisher-Yates with the counter-based generator, keyed by seed and epoch.
#include "data/data_order.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "data/json_fields.h"

namespace data {

base::Json to_json(const DataPosition& position) { return {{"epoch", position.epoch}, {"index", position.index}}; }

DataPosition data_position_from_json(const base::Json& json, const std::string& where) {
  const DataPosition position{integer_member(json, "epoch", where), integer_member(json, "index", where)};
  if (position.epoch < 0 || position.index < 0) {
    base::fail(base::Code::corruption, "{}: epoch {} and index {} of a data position cannot be negative", where,
               position.epoch, position.index);
  }
  return position;
}

DataOrder::DataOrder(int64_t num_rows, uint64_t seed, bool shuffle, DataPosition start)
    : num_rows_(num_rows), seed_(seed), shuffle_(shuffle), position_(start) {
  if (num_rows <= 0) base::fail(base::Code::invalid_argument, "a data set without rows has no order");
  if (start.epoch < 0 || start.index < 0 || start.index >= num_rows) {
    base::fail(
        base::Code::invalid_argument,
        "the data position (epoch {}, row {}) does not exist in a data set of {} rows; was the data set changed?",
        start.epoch, start.index, num_rows);
  }
  fill_order();
}

void DataOrder::fill_order() {
  order_.resize(static_cast<size_t>(num_rows_));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (!shuffle_) return;
  base::Philox random(
      base::derive_seed(base::derive_seed(seed_, "data order"), static_cast<uint64_t>(position_.epoch)));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.next_below(i)]);
}

int64_t DataOrder::next() {
  const int64_t row = order_[static_cast<size_t>(position_.index)];
  if (++position_.index == num_rows_) {
    position_ = {position_.epoch + 1, 0};
    fill_order();
  }
  return row;
}

std::vector<int64_t> DataOrder::next(int64_t count) {
  CHECK(count >= 0);
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(rows.size()) < count) rows.push_back(next());
  return rows;
}

}  // namespace data
