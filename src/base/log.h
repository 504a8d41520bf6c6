// The one logger: messages for a person, on standard error. Set once in main; any thread may write.
#pragma once
#include <spdlog/spdlog.h>

namespace base {

// level: "debug", "info", "warn", "error". Error{invalid_argument} for another name.
void set_up_log(const std::string& level);

}  // namespace base
