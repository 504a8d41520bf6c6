// UTF-8 as Unicode 15, table 3-7 defines it: where text is valid, and what invalid bytes become. Replacement follows
// the "maximal subpart" practice of section 3.9 (one U+FFFD for each longest prefix of a character that breaks off), as
// the tokenizers library does. Pure functions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace data {

enum class Utf8State { valid, invalid, incomplete };

// The first character of bytes (not empty). length: bytes of the character, or of the part to be replaced by one
// U+FFFD, or of the beginning of a character that the end of bytes cuts off.
struct Utf8Char {
  Utf8State state;
  size_t length;
};
Utf8Char first_char(std::string_view bytes);

// Offset of the first byte that is not part of valid UTF-8; bytes.size() when all of it is valid.
size_t find_invalid_utf8(std::string_view bytes);

// Appends bytes to text with U+FFFD for what is invalid and returns how many bytes were used: all of them, except a
// character cut off at the end, which stays unless at_end is set (then it is replaced too).
size_t append_lossy(std::string_view bytes, bool at_end, std::string& text);

}  // namespace data
