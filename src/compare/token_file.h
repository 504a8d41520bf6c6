// What is to be scored, as JSON lines: {"input_ids": [5, 17, 3]} (or "ids"), or {"text": "..."}; other members are left
// alone.
#pragma once
#include <filesystem>
#include <functional>
#include <vector>

#include "base/json.h"
#include "compare/side.h"

namespace compare {

inline constexpr int64_t kMaxTokens = int64_t{1} << 24;  // of one comparison

// Encodes a text; where: for its messages.
using Encode = std::function<Ids(const std::string& text, const std::string& where)>;

// Errors: those of data::read_json_lines; corruption with file and line for a line of another form; invalid_argument
// for more than kMaxTokens tokens, and for a file without lines.
std::vector<Sequence> read_tokens(const std::filesystem::path& path, const Encode& encode);

// A list of token ids. Error{corruption} naming where, the element and what it is.
Ids read_ids(const base::Json& json, const std::string& where);

}  // namespace compare
