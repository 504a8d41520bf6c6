// Shapes and lists of names in messages.
#include "tensor/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tensor {

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void append_list(std::string& text, const char* kind, const std::vector<std::string>& names) {
  constexpr size_t kListed = 8;
  if (names.empty()) return;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kListed));
  text += fmt::format("{}{} {}: {}{}", text.empty() ? "" : "; ", names.size(), kind,
                      fmt::join(names.begin(), end, ", "), names.size() > kListed ? ", ..." : "");
}

}  // namespace tensor
