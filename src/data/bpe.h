// Byte-pair merges by rank: the lowest-ranked neighbouring pair merges first, the leftmost of equals, until no pair is
// in the table. O(n log n) in the bytes of a piece, whatever it contains. Source: Sennrich et al. 2016; ties and order
// as in the tokenizers library.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace data {

// left and right become result. The rank of a merge is its place in the list.
struct Merge {
  int32_t left, right, result;
};

// Immutable: any thread may encode with it.
class Bpe {
 public:
  // byte_ids: the token of each single byte, -1 where the vocabulary has none. where: for messages.
  // Error{corruption} when a pair stands twice in merges (which rank is meant is not known).
  Bpe(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges, const std::string& where);

  // Appends the tokens of piece to ids. Bytes without a token are dropped, as the tokenizers library does without
  // unk_token.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  struct Ranked {
    int32_t rank, result;  // rank -1: no such merge
  };
  struct Slot {
    uint64_t pair;
    Ranked merge;
  };
  Ranked find(int32_t left, int32_t right) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  int shift_ = 63;           // 64 - log2(slots)
};

}  // namespace data
