// The text of an answer as it grows, and the search for stop texts in it. Works on bytes: a stop text is found wherever
// its bytes stand, across tokens and inside them. No torch.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rollout {

// Where a stop text begins.
struct StopMatch {
  size_t at = 0;     // byte of the text
  size_t which = 0;  // of the list
};

class StopText {
 public:
  // No text may be empty. The list must outlive the object.
  explicit StopText(const std::vector<std::string>& stops) : stops_(&stops) {}

  // Adds the bytes of one token. A match that ends in them: the one that ends first, of those that end together the
  // longest.
  std::optional<StopMatch> add(std::string_view bytes);

  const std::string& text() const { return text_; }

 private:
  const std::vector<std::string>* stops_;
  std::string text_;
};

}  // namespace rollout
