// Counter-based random numbers: a value is a pure function of (key, counter), so that any part of a run can be repeated
// alone, in any order and on any number of threads. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011 (Philox4x32-10).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace base {

// Philox4x32 with 10 rounds. key: the seed; counter: position, stream. Four independent 32-bit words.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0);

// In (0, 1): the middles of 2^24 equal parts, so that log(u) is finite and f32 holds each value exactly.
inline double uniform_from_bits(uint32_t bits) { return (static_cast<double>(bits >> 8) + 0.5) * (1.0 / 16777216.0); }

// A seed for a part of a run: mixes a parent seed with a name or a number (SplitMix64 finaliser). Not for cryptography.
uint64_t derive_seed(uint64_t seed, uint64_t part);
uint64_t derive_seed(uint64_t seed, std::string_view part);

// A stream of numbers from one key, for code that draws in order (shuffles, initial weights). Copyable; the state is
// the counter.
class Philox {
 public:
  explicit Philox(uint64_t key, uint64_t position = 0) : key_(key), position_(position) {}
  uint32_t next();
  uint64_t next_below(uint64_t bound);  // uniform in [0, bound), without modulo bias; bound > 0
  double next_uniform() { return uniform_from_bits(next()); }
  double next_normal();                            // mean 0, variance 1 (Box-Muller, one value of each pair)
  uint64_t position() const { return position_; }  // words drawn so far

 private:
  uint64_t key_, position_;
};

}  // namespace base
