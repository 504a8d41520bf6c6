// JSON as Python's json.dumps(value, ensure_ascii=False) writes it, which is what DeepSeek-V4's prompts contain: ", "
// and ": " as separators, characters beyond ASCII as they are, floats as Python's repr.
#pragma once
#include <string>

#include "base/json.h"

namespace data {

std::string to_python_json(const base::Json& json);

}  // namespace data
