// A failed CHECK is an error of its own kind, with the place in our code.
#include "base/check.h"

#include "base/expect_error.h"

namespace {

TEST(Check, AFailedOneNamesFileConditionAndDetail) {
  const int found = 3;
  test::expect_error(base::Code::internal, {"check_test.cpp:", "found == 4", "found 3", "please report"},
                     [&] { CHECK(found == 4, "found {}", found); });
  test::expect_error(base::Code::internal, {"check failed: found == 4 (a bug"}, [&] { CHECK(found == 4); });
  EXPECT_NO_THROW(CHECK(found == 3, "never formatted {}", found));
}

}  // namespace
