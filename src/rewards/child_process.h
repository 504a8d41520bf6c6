// A program that we start, talk to in lines over its standard input and output, and kill. It gets its own process
// group, so that whatever it starts dies with it, and the signal of death of the thread that started it, so that it
// never outlives us: start it from a thread that lives as long as it should. What it writes to standard error is kept
// (the last 2 KiB) for messages.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "rewards/reward.h"

namespace rewards {

// Used by one thread at a time. The destructor kills the process group and waits for the process (2 s at most: one that
// hangs in the kernel is left behind).
class ChildProcess {
 public:
  // command[0] is looked up in PATH. Error{unavailable} when it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  enum class Ending { line, timed_out, ended, too_long, stopped };
  struct Reply {
    Ending ending;
    std::string line;  // without its newline
  };
  // Writes request and a newline, and waits for one line of at most max_bytes. After any ending but `line` the
  // conversation is out of step: destroy the object.
  Reply exchange(std::string_view request, size_t max_bytes, double timeout_s, const StopAsked& stop);

  bool has_unread_output() const { return !output_.empty(); }
  const std::string& last_errors() const { return errors_; }
  pid_t pid() const { return pid_; }

 private:
  enum class State { open, ended };
  State write_some(std::string_view& request);
  State read_output();
  void read_errors();
  void close_all();

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  // our ends
  std::string output_, errors_;
};

}  // namespace rewards
