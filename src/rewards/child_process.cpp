// vfork, because a policy of tens of gigabytes may be in memory and fork would copy its page tables.
#include "rewards/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "rewards/external.h"

namespace rewards {
namespace {
constexpr size_t kKeptErrors = 2048;

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      base::fail(base::Code::unavailable, "cannot make a pipe: {}", std::strerror(errno));
    read = ends[0];
    write = ends[1];
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
  static int take(int& end) { return std::exchange(end, -1); }
};

// Blocks all signals of this thread for its lifetime. With SIGPIPE among them, a write to a dead child is an error
// code, and the signal that it raised is taken back before the others are let in again.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
    sigset_t pending;
    sigpending(&pending);
    pipe_was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() {
    if (!pipe_was_pending_) {
      sigset_t pipe;
      sigemptyset(&pipe);
      sigaddset(&pipe, SIGPIPE);
      const timespec now{0, 0};
      while (::sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_{};
  bool pipe_was_pending_ = false;
};

struct ChildEnds {
  int in, out, err;
};

// In the child, between vfork and exec: system calls only, nothing is written but *error.
[[noreturn]] void become(char* const* argv, const ChildEnds& ends, pid_t parent, volatile int* error) {
  struct sigaction normal {};
  normal.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &normal, nullptr);
  ::sigaction(SIGINT, &normal, nullptr);
  ::sigaction(SIGTERM, &normal, nullptr);
  ::setpgid(0, 0);  // Ctrl-C at the terminal is for us; we end the group ourselves
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // we died in between
  ::dup2(ends.in, 0);
  ::dup2(ends.out, 1);
  ::dup2(ends.err, 2);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvp(argv[0], argv);
  *error = errno;
  ::_exit(127);
}

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  Pipe in, out, err;
  const ChildEnds ends{in.read, out.write, err.write};
  const pid_t parent = ::getpid();
  volatile int error = 0;
  {
    const SignalsBlocked blocked;
    pid_ = ::vfork();
    if (pid_ == 0) become(argv.data(), ends, parent, &error);
    if (pid_ < 0) error = errno;
  }
  if (error != 0) {
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    const int code = error;
    base::fail(base::Code::unavailable, "cannot start the reward command \"{}\": {}", command[0], std::strerror(code));
  }
  in_ = Pipe::take(in.write);
  out_ = Pipe::take(out.read);
  err_ = Pipe::take(err.read);
  for (const int fd : {in_, out_, err_}) set_nonblocking(fd);
}

ChildProcess::~ChildProcess() {
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);  // in case it has not reached setpgid
  close_all();
  constexpr int kReapTries = 200;
  for (int i = 0; i < kReapTries && ::waitpid(pid_, nullptr, WNOHANG) == 0; ++i) ::usleep(10'000);
}

void ChildProcess::close_all() {
  for (int* fd : {&in_, &out_, &err_}) {
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
  }
}

ChildProcess::State ChildProcess::write_some(std::string_view& request) {
  const SignalsBlocked blocked;
  const ssize_t n = ::write(in_, request.data(), request.size());
  if (n > 0) request.remove_prefix(static_cast<size_t>(n));
  return n < 0 && errno != EAGAIN && errno != EINTR ? State::ended : State::open;
}

ChildProcess::State ChildProcess::read_output() {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(out_, buffer.data(), buffer.size());
  if (n > 0) output_.append(buffer.data(), static_cast<size_t>(n));
  if (n == 0) return State::ended;
  return n < 0 && errno != EAGAIN && errno != EINTR ? State::ended : State::open;
}

void ChildProcess::read_errors() {
  std::array<char, 4096> buffer;
  ssize_t n = 0;
  // Bounded: a child that floods its standard error must not keep us here.
  for (int i = 0; i < 64 && (n = ::read(err_, buffer.data(), buffer.size())) > 0; ++i) {
    errors_.append(buffer.data(), static_cast<size_t>(n));
    if (errors_.size() > kKeptErrors) errors_.erase(0, errors_.size() - kKeptErrors);
  }
  if (n == 0) ::close(std::exchange(err_, -1));
}

ChildProcess::Reply ChildProcess::exchange(std::string_view request, size_t max_bytes, double timeout_s,
                                           const StopAsked& stop) {
  const base::Clock clock;
  const double deadline = clock.now_s() + timeout_s;
  const std::string line = std::string(request) + "\n";
  std::string_view left = line;
  for (;;) {
    if (const size_t end = output_.find('\n'); end != std::string::npos && left.empty()) {
      if (end > max_bytes) return {Ending::too_long, {}};
      Reply reply{Ending::line, output_.substr(0, end)};
      output_.erase(0, end + 1);
      return reply;
    }
    if (output_.size() > max_bytes) return {Ending::too_long, {}};
    if (stop()) return {Ending::stopped, {}};
    const double wait_s = std::min(deadline - clock.now_s(), kPollSlice_s);
    if (wait_s <= 0) return {Ending::timed_out, {}};
    std::array<pollfd, 3> ready = {{{out_, POLLIN, 0}, {err_, POLLIN, 0}, {left.empty() ? -1 : in_, POLLOUT, 0}}};
    ::poll(ready.data(), ready.size(), static_cast<int>(wait_s * 1000) + 1);
    if (ready[1].revents != 0) read_errors();
    State state = State::open;
    if (ready[2].revents != 0) state = write_some(left);
    if (ready[0].revents != 0 && read_output() == State::ended) state = State::ended;
    if (state == State::ended && (output_.find('\n') == std::string::npos || !left.empty())) {
      if (err_ >= 0) read_errors();
      return {Ending::ended, {}};
    }
  }
}

}  // namespace rewards
