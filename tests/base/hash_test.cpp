// XXH64 against values of the reference library (libxxhash 0.8.1).
#include "base/hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace {

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 + 7);
  return bytes;
}

struct Vector {
  size_t size;
  uint64_t unseeded, seeded;  // seed 0, seed 2654435761
};

// Lengths on both sides of each border of the algorithm: 1-byte, 4-byte and 8-byte tails, one stripe, several.
constexpr Vector kVectors[] = {
    {0, 0xEF46DB3751D8E999, 0xAC75FDA2929B17EF},    {1, 0xA96C7F0CE858BBB7, 0x84E535B36672440D},
    {3, 0xBED43740EE6332BB, 0x00B77B485431CE5D},    {4, 0xFA212AE44B3BB23D, 0x60492C4BFCB70CAC},
    {7, 0x2744460DD675D2C0, 0xCDF83B729545B016},    {8, 0x994B676B71CE94DD, 0xF424EDEBFEA8D23F},
    {14, 0x574269377227D80A, 0x3FEEDF322F169692},   {31, 0x6711D55E306B5D8F, 0xFA1259CC8B20EB58},
    {32, 0x07F7B8E3BC5D6E25, 0x920F3E10A5DB09C6},   {33, 0x09F85EEB4E1CBE9F, 0x3D805E8712CB4890},
    {63, 0xB7C9968C066CB6A5, 0x184BC5097530BB9A},   {64, 0x50D4159A0411632E, 0x94667E10D68B3991},
    {101, 0x8742D6C2018318FD, 0xC62535787E3AE83A},  {222, 0x2D0544CCA0F576C7, 0xD0755EEE702127BB},
    {1000, 0x0BF0BDBCC82EB373, 0xB43E358553049780},
};

TEST(Hash64, EqualsTheReferenceLibraryForEveryKindOfTail) {
  for (const Vector& vector : kVectors) {
    const std::vector<std::byte> bytes = pattern(vector.size);
    EXPECT_EQ(base::hash64(bytes), vector.unseeded) << vector.size;
    EXPECT_EQ(base::hash64(bytes, 2654435761), vector.seeded) << vector.size;
  }
  EXPECT_EQ(base::hash64("abc"), 0x44BC2CF5AD770999);
}

TEST(Hash64, DoesNotDependOnWhereThePartsAreCut) {
  const std::vector<std::byte> bytes = pattern(222);
  for (size_t part = 1; part <= bytes.size(); ++part) {
    base::Hash64 hash;
    for (size_t at = 0; at < bytes.size(); at += part) {
      hash.update(std::span(bytes).subspan(at, std::min(part, bytes.size() - at)));
      hash.update(std::string_view());
    }
    EXPECT_EQ(hash.digest(), 0x2D0544CCA0F576C7) << "parts of " << part;
  }
}

TEST(Hash64, TextHasSixteenDigits) {
  EXPECT_EQ(base::hash_text(0xAB), "00000000000000ab");
  EXPECT_EQ(base::hash_text(UINT64_MAX), "ffffffffffffffff");
}

}  // namespace
