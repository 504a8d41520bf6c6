// Time as an argument, so that tests can fake it. Seconds are doubles.
#pragma once
#include <chrono>
#include <functional>

namespace base {

struct Clock {
  std::function<double()> now_s = [] {  // monotonic
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
};

}  // namespace base
