// A byte trie per group; work per place is bounded by the longest token.
#include "data/added_tokens.h"

namespace data {
namespace {
uint64_t edge(int32_t node, char byte) { return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte); }
}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) (token.normalized ? normalized_ : plain_).add(token.content, token.id);
}

void AddedTokenMatcher::Trie::add(std::string_view text, int32_t id) {
  int32_t node = 0;
  for (const char byte : text) {
    const auto [found, is_new] = edges.try_emplace(edge(node, byte), static_cast<int32_t>(ids.size()));
    if (is_new) ids.push_back(-1);
    node = found->second;
  }
  ids[static_cast<size_t>(node)] = id;
}

void AddedTokenMatcher::Trie::find(std::string_view text, ByteRange range,
                                   std::vector<AddedTokenMatch>& matches) const {
  if (edges.empty()) return;
  for (size_t at = range.begin; at < range.end;) {
    AddedTokenMatch longest{{at, at}, -1};
    int32_t node = 0;
    for (size_t end = at; end < range.end; ++end) {
      const auto next = edges.find(edge(node, text[end]));
      if (next == edges.end()) break;
      node = next->second;
      if (const int32_t id = ids[static_cast<size_t>(node)]; id >= 0) longest = {{at, end + 1}, id};
    }
    if (longest.id < 0) {
      ++at;
    } else {
      matches.push_back(longest);
      at = longest.range.end;
    }
  }
}

std::vector<AddedTokenMatch> AddedTokenMatcher::find(std::string_view text, ByteRange range) const {
  std::vector<AddedTokenMatch> first, all;
  plain_.find(text, range, first);
  size_t at = range.begin;
  for (const AddedTokenMatch& match : first) {
    normalized_.find(text, {at, match.range.begin}, all);
    all.push_back(match);
    at = match.range.end;
  }
  normalized_.find(text, {at, range.end}, all);
  return all;
}

}  // namespace data
