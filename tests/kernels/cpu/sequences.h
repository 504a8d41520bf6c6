// Random sequences, cut into passes over a cache in every way: what tests of attention, compressor and indexer run on.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"

namespace test {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();  // what nobody may read

inline std::vector<float> normals(base::Philox& random, int64_t count, double scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(scale * random.next_normal());
  return values;
}

// Tokens of one sequence in one pass.
struct Piece {
  int64_t sequence = 0, start = 0, count = 0;
};
using Pass = std::vector<Piece>;

// One pass with all of every sequence.
inline Pass whole(const std::vector<int64_t>& lengths) {
  Pass pass;
  for (size_t s = 0; s < lengths.size(); ++s) pass.push_back({static_cast<int64_t>(s), 0, lengths[s]});
  return pass;
}

// Passes in which every sequence that is not done goes on by `chunk` tokens, in turns from the last to the first.
inline std::vector<Pass> in_chunks(const std::vector<int64_t>& lengths, int64_t chunk) {
  std::vector<Pass> passes;
  for (int64_t start = 0;; start += chunk) {
    Pass pass;
    for (size_t s = lengths.size(); s-- > 0;) {
      if (start < lengths[s]) pass.push_back({static_cast<int64_t>(s), start, std::min(chunk, lengths[s] - start)});
    }
    if (pass.empty()) return passes;
    passes.push_back(pass);
  }
}

// Passes that mix prompts, chunks and single tokens.
inline std::vector<Pass> mixed(base::Philox& random, const std::vector<int64_t>& lengths) {
  std::vector<Pass> passes;
  std::vector<int64_t> done(lengths.size(), 0);
  while (done != lengths) {
    Pass pass;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const uint64_t wish = random.next_below(3) == 0 ? random.next_below(40) : random.next_below(2);
      const int64_t count = std::min(static_cast<int64_t>(wish), lengths[s] - done[s]);
      if (count == 0) continue;
      pass.push_back({static_cast<int64_t>(s), done[s], count});
      done[s] += count;
    }
    if (!pass.empty()) passes.push_back(pass);
  }
  return passes;
}

// Every number of threads in turn; one thread afterwards.
template <class F>
void with_threads(const F& run) {
  for (const int count : {1, 2, 3}) {
    base::set_num_threads(count);
    run(count);
  }
  base::set_num_threads(1);
}

}  // namespace test
