// The name of a log level.
#include "base/log.h"

#include "base/expect_error.h"

namespace {

TEST(Log, AnUnknownLevelIsRefusedWithTheKnownOnes) {
  test::expect_error(base::Code::invalid_argument, {"\"loud\"", "debug, info, warn or error"},
                     [] { base::set_up_log("loud"); });
}

}  // namespace
