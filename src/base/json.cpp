// Strict parsing with a place in the message.
#include "base/json.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace base {
namespace {
constexpr int kMaxDepth = 256;

// The parser of nlohmann-json recurses on destruction and copies by depth: refuse deep documents by a scan of the
// brackets.
void check_depth(std::string_view text, const std::string& where) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth)
        fail(Code::corruption, "{}: JSON is nested deeper than {} levels (byte {})", where, kMaxDepth, i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}
}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  check_depth(text, where);
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    const size_t at = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const size_t start = text.rfind('\n', at == 0 ? 0 : at - 1);
    const size_t column = at - (start == std::string_view::npos ? 0 : start + 1) + 1;
    const std::string what = error.what();
    const size_t colon = what.find(": ");
    fail(Code::corruption, "{}:{}:{}: not valid JSON: {}", where, line, column,
         colon == std::string::npos ? what : what.substr(colon + 2));
  } catch (const Json::exception& error) {
    fail(Code::corruption, "{}: not valid JSON: {}", where, error.what());
  }
}

Json read_json(const std::filesystem::path& path, int64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace base
