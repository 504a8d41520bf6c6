// A 64-bit checksum for what is stored and sent. Finds accidents (a flipped bit, a lost part), not forgery.
// Source: the xxHash specification, version 0.1.1, algorithm XXH64; a value written here can be checked with `xxhsum
// -H1`.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace base {

// Of bytes that arrive in parts: the digest does not depend on where the parts are cut. Copyable.
class Hash64 {
 public:
  explicit Hash64(uint64_t seed = 0);
  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes) { update(std::as_bytes(std::span(bytes))); }
  uint64_t digest() const;  // of everything so far; more may follow

 private:
  uint64_t seed_;
  std::array<uint64_t, 4> lanes_;
  std::array<std::byte, 32> rest_{};  // not yet a whole stripe
  uint64_t size_ = 0;                 // bytes in total
};

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
inline uint64_t hash64(std::string_view bytes, uint64_t seed = 0) {
  return hash64(std::as_bytes(std::span(bytes)), seed);
}

std::string hash_text(uint64_t hash);  // 16 hex digits, for JSON, where numbers of 64 bits do not survive every reader

}  // namespace base
