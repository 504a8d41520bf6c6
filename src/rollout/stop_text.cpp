// Stop texts, searched for only where new bytes can complete them.
#include "rollout/stop_text.h"

namespace rollout {

std::optional<StopMatch> StopText::add(std::string_view bytes) {
  const size_t old_size = text_.size();
  text_.append(bytes);
  std::optional<StopMatch> found;
  size_t found_end = 0;
  for (size_t i = 0; i < stops_->size(); ++i) {
    const std::string& stop = (*stops_)[i];
    const size_t from = old_size + 1 > stop.size() ? old_size + 1 - stop.size() : 0;
    const size_t at = text_.find(stop, from);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (!found || end < found_end || (end == found_end && at < found->at)) found = StopMatch{at, i}, found_end = end;
  }
  return found;
}

}  // namespace rollout
