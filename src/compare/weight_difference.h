// Parameters of two sides, compared in the form that they multiply with, and what the difference looks like.
//
// Sides of the same precision should hold the same numbers. Where one rounds more than the other (f32, bf16, fp8,
// fp8_fp4, in this order), its numbers should be the other's, published and quantised: decisions 2 to 4.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compare/forward.h"

namespace compare {

enum class WeightKind {
  rows_permuted,    // a table of experts by token: the same rows in another order
  experts_renamed,  // the same table with other numbers for the experts
  table,            // another table
  e8m0_as_number,   // codes times the scale's exponent byte instead of 2^(byte - 127)
  scales,           // the same codes times other scales
  other_format,     // both quantised, in formats of which neither follows from the other; only close
  values,           // anything else
};

struct TensorDifference {
  std::string name;
  WeightKind kind = WeightKind::values;
  int wrong_side = -1;  // 0 or 1 where the difference tells; -1: it does not
  std::string text;     // what differs, with numbers
  double relative = 0;  // |a - b| / max(|a|, |b|), 2-norm over the tensor
};

struct WeightComparison {
  int64_t tensors = 0;                        // compared
  int64_t equal = 0;                          // the same numbers
  int64_t converted = 0;                      // of unequal precision: exactly what the coarser side should hold
  std::vector<TensorDifference> differences;  // in the order of the model; other_format too
};

// A side's parameters and how they were rounded.
struct Parameters {
  const model::RunWeights& weights;
  const model::Profile& profile;
};

// Parameters whose name `wanted` takes (empty: all); MTP blocks are left out, no pass here runs them. The configs must
// have the same sizes.
WeightComparison compare_weights(const Parameters& a, const Parameters& b,
                                 const std::function<bool(const std::string& name)>& wanted, const Watch& watch);

// Copies the parameters that `wanted` takes (sharing memory).
void take_parameters(model::RunWeights& to, const model::RunWeights& from,
                     const std::function<bool(const std::string& name)>& wanted);

}  // namespace compare
