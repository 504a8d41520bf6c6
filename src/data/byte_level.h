// The byte-to-character alphabet of byte-level BPE: token texts in tokenizer.json spell each byte as one printable
// character (byte 0x20 is U+0120, byte 0x0A is U+010A). Source: the GPT-2 encoder (Radford et al. 2019): printable
// Latin-1 bytes stand for themselves, the other 68 bytes take U+0100, U+0101, ... in ascending order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace data {

// The character of a byte, as UTF-8.
const std::string& byte_to_char(uint8_t byte);

std::string to_byte_level(std::string_view bytes);

// The bytes that a token text spells. Empty optional: some character is outside the alphabet (added tokens such as
// <|User|> with full-width bars); such a text stands for its own UTF-8 bytes.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace data
