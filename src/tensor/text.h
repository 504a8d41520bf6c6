// Shapes and lists of names for messages.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tensor {

std::string shape_text(const std::vector<int64_t>& shape);  // "[2, 3]"

// Adds "3 missing: a, b, c" to a text of such parts, separated by "; ". Nothing for an empty list; after eight names
// "...".
void append_list(std::string& text, const char* kind, const std::vector<std::string>& names);

}  // namespace tensor
