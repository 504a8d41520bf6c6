// The rows of Unicode's table 3-7 as ranges of the second byte.
#include "data/utf8.h"

namespace data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct LeadByte {
  size_t length;      // of the whole character; 0: no character begins so
  uint8_t low, high;  // range of the second byte
};

LeadByte classify(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};  // below: over-long
  if (lead == 0xED) return {3, 0x80, 0x9F};  // above: surrogates
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};  // below: over-long
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};  // above: beyond U+10FFFF
  return {0, 0, 0};
}

}  // namespace

Utf8Char first_char(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  if (at(0) < 0x80) return {Utf8State::valid, 1};
  const LeadByte lead = classify(at(0));
  if (lead.length == 0) return {Utf8State::invalid, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8State::incomplete, i};
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (at(i) < low || at(i) > high) return {Utf8State::invalid, i};
  }
  return {Utf8State::valid, lead.length};
}

size_t find_invalid_utf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Char next = first_char(bytes.substr(at));
    if (next.state != Utf8State::valid) return at;
    at += next.length;
  }
  return bytes.size();
}

size_t append_lossy(std::string_view bytes, bool at_end, std::string& text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Char next = first_char(bytes.substr(at));
    if (next.state == Utf8State::incomplete && !at_end) break;
    text += next.state == Utf8State::valid ? bytes.substr(at, next.length) : kReplacement;
    at += next.length;
  }
  return at;
}

}  // namespace data
