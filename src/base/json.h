// JSON with the order of keys kept. Parsing is strict; a bad document is an Error{corruption} that names the source,
// the line and the column. Nesting deeper than 256 is refused before it can exhaust the stack.
#pragma once
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace base {

using Json = nlohmann::ordered_json;

// where: a file name or another name for messages.
Json parse_json(std::string_view text, const std::string& where);

// Reads and parses a whole file of at most max_bytes. Errors: not_found, corruption, invalid_argument (too large).
Json read_json(const std::filesystem::path& path, int64_t max_bytes = int64_t{1} << 30);

// One line of text for messages and JSON-lines files; invalid UTF-8 becomes U+FFFD instead of an exception.
std::string to_line(const Json& json);

}  // namespace base
