// Philox4x32-10 and what is drawn from it.
#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace base {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                               static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMultiply0 * x[0], p1 = kMultiply1 * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return x;
}

namespace {
uint64_t mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}
}  // namespace

uint64_t derive_seed(uint64_t seed, uint64_t part) { return mix(mix(seed) ^ part); }

uint64_t derive_seed(uint64_t seed, std::string_view part) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return derive_seed(seed, hash);
}

uint32_t Philox::next() {
  const uint64_t at = position_++;
  return philox(key_, at / 4)[at % 4];
}

uint64_t Philox::next_below(uint64_t bound) {
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  for (;;) {
    const uint64_t high = next(), value = high << 32 | next();
    if (value < limit) return value % bound;
  }
}

double Philox::next_normal() {
  const double radius = std::sqrt(-2 * std::log(next_uniform()));
  return radius * std::cos(2 * std::numbers::pi * next_uniform());
}

}  // namespace base
