// The one error type of Furlong. Thrown at entry points, with a message that names the thing, what it was, what it
// should have been, and where possible what to do. Caught in main, in a request handler, at a worker's top. Bugs of our
// own are CHECKs (base/check.h), not Errors.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace base {

enum class Code { invalid_argument, not_found, corruption, unavailable, internal };

std::string_view to_string(Code code);

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// fail(Code::corruption, "{}: header ends at byte {}", path, n) throws Error.
template <class... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace base
