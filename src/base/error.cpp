// Names of the error codes.
#include "base/error.h"

namespace base {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::invalid_argument:
      return "invalid argument";
    case Code::not_found:
      return "not found";
    case Code::corruption:
      return "corruption";
    case Code::unavailable:
      return "unavailable";
    case Code::internal:
      return "internal error";
  }
  return "unknown";
}

}  // namespace base
