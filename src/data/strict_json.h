// JSON for what users give us (data set rows, tokenizer files): as base/json.h, and also refuses what a reader would
// otherwise change or drop in silence: a key that stands twice in one object, an integer that needs more than 64 bits.
// Takes linear time in the size of the text, also for objects with many keys (base::Json's own parser is quadratic in
// them).
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace data {

// where: file and line, for messages. Errors name where and the byte: corruption when the text is not JSON,
// invalid_argument for the two refusals above and for nesting deeper than 256.
base::Json parse_strict_json(std::string_view text, const std::string& where);

}  // namespace data
