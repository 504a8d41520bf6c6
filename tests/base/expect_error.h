// For tests of refusals: the code and every part of the message that a reader needs.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace test {

inline void expect_error(base::Code code, const std::vector<std::string>& parts, const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    EXPECT_EQ(base::to_string(error.code()), base::to_string(code)) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
    return;
  }
  ADD_FAILURE() << "nothing was thrown; expected " << base::to_string(code) << " naming "
                << testing::PrintToString(parts);
}

}  // namespace test
