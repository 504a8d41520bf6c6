// XXH64: four lanes over stripes of 32 bytes, then the rest, then a final mix. Step numbers are those of the
// specification.
#include "base/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace base {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                   kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;
constexpr size_t kStripe = 32;

template <class Word>
uint64_t read(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

uint64_t round(uint64_t lane, uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

void add_stripe(std::array<uint64_t, 4>& lanes, const std::byte* stripe) {
  for (size_t i = 0; i < 4; ++i) lanes[i] = round(lanes[i], read<uint64_t>(stripe + 8 * i));
}

}  // namespace

Hash64::Hash64(uint64_t seed) : seed_(seed), lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1} {}

void Hash64::update(std::span<const std::byte> bytes) {
  const size_t held = size_ % kStripe;
  size_ += bytes.size();
  if (held != 0) {
    const size_t taken = std::min(kStripe - held, bytes.size());
    std::copy_n(bytes.begin(), taken, rest_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(taken);
    if (held + taken < kStripe) return;
    add_stripe(lanes_, rest_.data());
  }
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) add_stripe(lanes_, bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

uint64_t Hash64::digest() const {
  uint64_t hash = seed_ + kPrime5;
  if (size_ >= kStripe) {  // step 3
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += size_;  // step 4
  const std::byte* at = rest_.data();
  const std::byte* const end = at + size_ % kStripe;
  for (; end - at >= 8; at += 8)
    hash = std::rotl(hash ^ round(0, read<uint64_t>(at)), 27) * kPrime1 + kPrime4;  // step 5
  for (; end - at >= 4; at += 4) hash = std::rotl(hash ^ (read<uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
  for (; at < end; ++at) hash = std::rotl(hash ^ (read<uint8_t>(at) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;  // step 6
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) {
  Hash64 hash(seed);
  hash.update(bytes);
  return hash.digest();
}

std::string hash_text(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace base
