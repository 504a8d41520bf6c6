// The pieces of a text are short, so the common path touches a few symbols and a small heap.
#include "data/bpe.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace data {
namespace {

constexpr uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
constexpr uint64_t kHashMultiplier = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio (Fibonacci hashing)

// A token inside the piece under work: a doubly linked list over the initial symbols.
struct Symbol {
  int32_t id;           // -1: merged into its left neighbour
  int32_t left, right;  // places in the list, -1 at the ends
};

struct Candidate {
  int32_t rank, at;                               // at: place of the left symbol
  int32_t left, right, result;                    // ids when it was pushed: stale if the symbols have changed since
  bool operator<(const Candidate& other) const {  // std::push_heap keeps the greatest on top
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges, const std::string& where)
    : byte_ids_(byte_ids) {
  CHECK(merges.size() < (size_t{1} << 30));
  size_t size = 2;
  for (; size < 2 * merges.size(); size *= 2) --shift_;
  slots_.assign(size, Slot{0, {-1, 0}});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t pair = pair_key(merge.left, merge.right);
    size_t at = static_cast<size_t>(pair * kHashMultiplier >> shift_);
    for (; slots_[at].merge.rank >= 0; at = (at + 1) & (size - 1)) {
      if (slots_[at].pair != pair) continue;
      base::fail(base::Code::corruption, "{}: merges {} and {} are of the same pair of tokens (ids {} and {})", where,
                 slots_[at].merge.rank, rank, merge.left, merge.right);
    }
    slots_[at] = {pair, {static_cast<int32_t>(rank), merge.result}};
  }
}

Bpe::Ranked Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  size_t at = static_cast<size_t>(pair * kHashMultiplier >> shift_);
  while (slots_[at].merge.rank >= 0 && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return slots_[at].merge;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  CHECK(piece.size() < (size_t{1} << 31));
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    const auto at = static_cast<int32_t>(symbols.size());
    if (id >= 0) symbols.push_back({id, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().right = -1;

  std::vector<Candidate> heap;
  const auto push = [&](int32_t at) {
    const Symbol& symbol = symbols[static_cast<size_t>(at)];
    if (symbol.right < 0) return;
    const int32_t right = symbols[static_cast<size_t>(symbol.right)].id;
    const Ranked merge = find(symbol.id, right);
    if (merge.rank < 0) return;
    heap.push_back({merge.rank, at, symbol.id, right, merge.result});
    std::push_heap(heap.begin(), heap.end());
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) push(static_cast<int32_t>(i));

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& symbol = symbols[static_cast<size_t>(best.at)];
    if (symbol.id != best.left || symbol.right < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(symbol.right)];
    if (right.id != best.right) continue;
    symbol.id = best.result;
    right.id = -1;
    symbol.right = right.right;
    if (symbol.right >= 0) symbols[static_cast<size_t>(symbol.right)].left = best.at;
    if (symbol.left >= 0) push(symbol.left);
    push(best.at);
  }
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].right) {
    ids.push_back(symbols[static_cast<size_t>(at)].id);
  }
}

}  // namespace data
