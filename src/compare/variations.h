// Ways in which an engine is known to compute something else than its config and weights say. Each changes a
// definition; the one that then gives what a side really computed names what the side does.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compare/forward.h"

namespace compare {

struct Variation {
  std::string id;                  // "window", for JSON and scripts
  std::vector<model::Site> sites;  // where it shows first
  std::string text;                // what a side that computes so does, after "A " or "B "
  std::function<void(Definition&)> apply;
};

// Those that say something about a layer of this definition.
std::vector<Variation> variations_of(const Definition& definition, int64_t layer);

}  // namespace compare
