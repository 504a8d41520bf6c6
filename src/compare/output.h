// A comparison as text for a terminal, as JSON, and as one HTML page that needs nothing from elsewhere.
#pragma once
#include <string>

#include "base/json.h"
#include "compare/comparison.h"

namespace compare {

std::string to_text(const Comparison& comparison);
base::Json to_json(const Comparison& comparison);
// With heat maps of tokens by layer of the sequences that were walked, and each token's difference.
std::string to_html(const Comparison& comparison);

// ---- Shared by the three.

// The token itself, its text or else its id; control characters as escapes.
std::string token_text(const Comparison& comparison, size_t sequence, int64_t position);
// The text before and after it, a few tokens each way.
struct Surroundings {
  std::string before, after;
};
Surroundings surroundings(const Comparison& comparison, size_t sequence, int64_t position);
std::string number_text(double value);  // four digits

}  // namespace compare
