// Ctrl-C (SIGINT) and SIGTERM as a wish to stop: the first one is remembered, so that a run can finish or drop the step
// in flight and say how to resume it; the second ends the process at once (exit code 128 + signal, without
// destructors).
#pragma once

namespace base {

// Catches the signals for its lifetime, then gives them back. At most one exists at a time; made in main before threads
// start. requested() may be asked from any thread.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  bool requested() const { return signal() != 0; }
  int signal() const;     // the first signal that came; 0 for none
  int exit_code() const;  // what the shell expects of a program ended by it: 128 + signal; 0 for none
};

}  // namespace base
