// CHECK(condition) and CHECK(condition, "format", args...): for bugs of our own. A failed check throws Error{internal}
// with file and line; it is never used for input from outside.
#pragma once
#include "base/error.h"

namespace base {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail);
inline std::string check_detail() { return {}; }
template <class... Args>
std::string check_detail(fmt::format_string<Args...> text, Args&&... args) {
  return fmt::format(text, std::forward<Args>(args)...);
}
}  // namespace base

#undef CHECK  // c10 defines a macro of this name
#define CHECK(condition, ...)                                                                                  \
  do {                                                                                                         \
    if (!(condition)) ::base::check_failed(__FILE__, __LINE__, #condition, ::base::check_detail(__VA_ARGS__)); \
  } while (false)
