// The alphabet, built once as a constant table.
#include "data/byte_level.h"

#include <array>

#include "data/utf8.h"

namespace data {
namespace {

constexpr int kFirstSpare = 0x100, kNumSpare = 68;

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<std::string, 256> to_char;
  std::array<int, kFirstSpare + kNumSpare> to_byte;  // by code point; -1: not in the alphabet

  Alphabet() {
    to_byte.fill(-1);
    int spare = kFirstSpare;
    for (int byte = 0; byte < 256; ++byte) {
      const int code = is_printable(byte) ? byte : spare++;
      to_byte[static_cast<size_t>(code)] = byte;
      std::string& text = to_char[static_cast<size_t>(byte)];
      if (code < 0x80) {
        text = static_cast<char>(code);
      } else {
        text = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
      }
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

const std::string& byte_to_char(uint8_t byte) { return alphabet().to_char[byte]; }

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) text += byte_to_char(static_cast<uint8_t>(c));
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = first_char(text.substr(at));
    if (next.state != Utf8State::valid || next.length > 2) return std::nullopt;
    size_t code = static_cast<uint8_t>(text[at]);
    if (next.length == 2) code = (code & 0x1F) << 6 | (static_cast<uint8_t>(text[at + 1]) & 0x3F);
    if (code >= alphabet().to_byte.size() || alphabet().to_byte[code] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().to_byte[code]);
    at += next.length;
  }
  return bytes;
}

}  // namespace data
