// Signal handlers. A handler has no argument of ours, hence the one variable of the file: lock-free, so safe to touch
// in a handler.
#include "base/stop.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

#include "base/check.h"

namespace base {
namespace {

std::atomic<int> first_signal{0};
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

void say(std::string_view text) {
  // Nothing can be done about a failed write to a closed terminal in a signal handler.
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

void on_signal(int signal) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    say("\nstopping when the step in flight allows it; the same signal again ends the program at once\n");
    return;
  }
  ::_exit(128 + signal);
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // no library call in flight fails with EINTR because somebody pressed Ctrl-C
  CHECK(::sigaction(SIGINT, &action, nullptr) == 0);
  CHECK(::sigaction(SIGTERM, &action, nullptr) == 0);
}

}  // namespace

StopSignals::StopSignals() {
  CHECK(!installed.exchange(true), "a second StopSignals was made while one exists");
  first_signal = 0;
  set_handler(on_signal);
}

StopSignals::~StopSignals() {
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  installed = false;
}

int StopSignals::signal() const { return first_signal; }

int StopSignals::exit_code() const { return requested() ? 128 + signal() : 0; }

}  // namespace base
