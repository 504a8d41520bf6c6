// Files of JSON lines, read strictly: one object a line, UTF-8. Only a line feed ends a line (U+2028, U+2029 and U+0085
// inside a text do not); one byte order mark at the start and a carriage return at the end of a line are dropped; blank
// lines are skipped and counted. Whatever else is wrong is an error with file and line.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/json.h"

namespace data {

constexpr int64_t kMaxJsonLineBytes = int64_t{64} << 20;

// What a reader does with the row of a line; where is "<file name>:<line>". Returns whether to go on.
using RowReader = std::function<bool(const base::Json& row, const std::string& where)>;
// Told of a line that cannot be read, with the message; returns to skip the line. Without one, the first such line is
// thrown.
using BadLineReader = std::function<void(const std::string& message)>;

// Errors: not_found; corruption (with file and line: not UTF-8, not JSON, not an object; or about the whole file when
// its first bytes say that it is something else: UTF-16, gzip, Parquet, a JSON array, ...). An error that read throws
// counts as a bad line too, if its code is corruption or invalid_argument.
void read_json_lines(const std::filesystem::path& path, const RowReader& read, const BadLineReader& bad_line = nullptr);

}  // namespace data
