// What every side has.
#include "compare/side.h"

#include "compare/forward.h"

namespace compare {

std::unique_ptr<Forward> Side::forward() { return nullptr; }

int64_t num_tokens(std::span<const Sequence> sequences) {
  int64_t tokens = 0;
  for (const Sequence& sequence : sequences) tokens += static_cast<int64_t>(sequence.ids.size());
  return tokens;
}

}  // namespace compare
