// What a failed CHECK says.
#include "base/check.h"

namespace base {

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  fail(Code::internal, "{}:{}: check failed: {}{}{} (a bug in Furlong: please report it)", file, line, condition,
       detail.empty() ? "" : ": ", detail);
}

}  // namespace base
