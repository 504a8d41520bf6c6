// Two lists of log-probs of the same tokens, compared token by token.
#pragma once
#include <span>
#include <vector>

#include "compare/side.h"
#include "metrics/statistics.h"

namespace compare {

// At or below this, a log-prob stands for an impossible token: engines write -9999, the lowest f32 or others.
inline constexpr float kImpossible = -9000.0f;

struct TokenDifference {
  size_t sequence = 0;   // index
  int64_t position = 0;  // in it
  float a = 0, b = 0;
  double difference = 0;  // |a - b|; infinity with a NaN
};

struct Differences {
  int64_t compared = 0;
  int64_t equal = 0;                   // the same f32
  int64_t impossible = 0;              // tokens that are impossible on both sides: not compared
  int64_t missing = 0;                 // beside the first of each sequence: tokens without a value on a side
  double mean_signed = 0;              // a - b
  metrics::Summary absolute;           // of |a - b|, nats
  std::vector<TokenDifference> worst;  // largest first, then in order; none that are equal

  bool all_equal() const { return equal == compared; }
};

// CHECK: both have one list per sequence, of the same lengths.
Differences compare_log_probs(std::span<const LogProbs> a, std::span<const LogProbs> b, size_t num_worst);

// What the differences look like as a whole, where one of these fits: log-probs shifted by a position, divided by a
// temperature after the softmax, or kept in 16 bits. Empty: none fits.
std::vector<std::string> patterns(std::span<const LogProbs> a, std::span<const LogProbs> b);

}  // namespace compare
