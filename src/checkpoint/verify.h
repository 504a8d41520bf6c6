// Comparing a converted checkpoint with what it was made from, value by value, by what the forms can hold: not by the
// code that converted.
#pragma once
#include <cstdint>
#include <functional>

#include "checkpoint/stored_weights.h"

namespace checkpoint {

// What a change of form may do to values.
enum class Loss {
  none,       // the new form holds every value of the old one
  bf16,       // rounded to bf16
  quantised,  // rounded to bf16, then to codes with power-of-two scales (decisions 4)
};
Loss expected_loss(const Form& from, const Form& to);

struct LossFigures {
  int64_t tensors = 0;        // parameters of the model, experts one by one
  double relative_error = 0;  // root of (sum of squared errors / sum of squared values), over all their values
};

struct Verified {
  LossFigures equal, rounded, quantised;
  bool complete = true;  // false: stopped
};

// Told after each piece how many values have been compared, of how many; false stops.
using VerifyProgress = std::function<bool(int64_t done, int64_t total)>;

// Both checked. Error{corruption} naming both files, the tensor, the place, both values and the allowed difference.
//
// Allowed: none, nothing (a zero may change its sign; values below 2^-126 in bf16, half of its smallest step 2^-133).
// bf16: 2^-8 of the value. quantised: to that, 2^-4 (e4m3) or 2^-2 (e2m1) of the value, or half of the codes' smallest
// step times the largest scale that the block may have, 2 * amax / (448 or 6).
Verified verify(const StoredWeights& before, const StoredWeights& after, const VerifyProgress& progress);

}  // namespace checkpoint
