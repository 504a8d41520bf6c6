// Set-up of the logger.
#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include "base/error.h"

namespace base {

void set_up_log(const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    fail(Code::invalid_argument, "log level \"{}\": use debug, info, warn or error", level);
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("furlong"));
  spdlog::set_pattern("%H:%M:%S %^%l%$ %v");
  spdlog::set_level(parsed);
}

}  // namespace base
