// The bytes of parameters in another form, in pieces.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "checkpoint/stored_weights.h"

namespace checkpoint {

class ConvertedValues {
 public:
  explicit ConvertedValues(const StoredWeights& in) : in_(in) {}

  // Hands on the bytes of one stored tensor in order; false from `take` stops. Returns whether all were handed on.
  // Errors: as StoredWeights::read; invalid_argument where e2m1 can't become e4m3 without loss; corruption for a value
  // that is not finite in the new form, and for a tid2eid that names experts twice or that don't exist.
  using Take = std::function<bool(std::span<const std::byte>)>;
  bool stream(const StoredPart& part, const Take& take);

 private:
  tensor::Quantised codes_of(const StoredPart& part, int64_t first, int64_t count) const;
  tensor::Tensor plain_of(const StoredPart& part, int64_t first, int64_t count) const;

  const StoredWeights& in_;
  // The scales of the codes handed on last: they are asked for next, unless a shard ends in between.
  std::string scales_of_;
  std::vector<tensor::Tensor> scales_;
};

}  // namespace checkpoint
