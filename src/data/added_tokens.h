// The added tokens of a tokenizer: texts that become one id each before anything else looks at the text. At each place
// the longest wins; those with "normalized": false are found in the whole text first, the others in what lies between
// them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/split_regex.h"

namespace data {

struct AddedToken {
  int32_t id = 0;
  std::string content;   // never empty
  bool special = false;  // left out by a decode that skips special tokens
  bool normalized = false;
};

struct AddedTokenMatch {
  ByteRange range;
  int32_t id;
};

// Immutable: any thread may search with it.
class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens);

  // Matches inside text[range], in order, none overlapping.
  std::vector<AddedTokenMatch> find(std::string_view text, ByteRange range) const;

 private:
  struct Trie {
    std::unordered_map<uint64_t, int32_t> edges;  // node * 256 + byte -> node; node 0 is the root
    std::vector<int32_t> ids = {-1};              // by node; -1: no token ends here
    void add(std::string_view text, int32_t id);
    void find(std::string_view text, ByteRange range, std::vector<AddedTokenMatch>& matches) const;
  };
  Trie plain_, normalized_;
};

}  // namespace data
