// The built program as a child process.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"

namespace e2e {

inline std::string program_path() { return FURLONG_BINARY_DIR "/furlong"; }

// Started at once; standard output and error go to one file. Killed if it still runs at the end.
class Program {
 public:
  Program(const std::vector<std::string>& arguments, std::filesystem::path output) : output_(std::move(output)) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    std::string path = program_path();
    std::vector<std::string> words = {path};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int error = ::posix_spawn(&pid_, path.c_str(), &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) {
      ADD_FAILURE() << path << ": " << std::strerror(error);
      pid_ = -1;
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) kill_hard();
  }

  // Exit code, or 128 + signal.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  struct Measured {
    int code;
    int64_t peak_bytes;  // of resident memory
  };
  Measured wait_measured() {
    int status = 0;
    rusage usage{};
    ::wait4(pid_, &status, 0, &usage);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), int64_t{usage.ru_maxrss} * 1024};
  }
  // False when it ended by itself within that time; then code() is its exit code.
  bool runs_longer_than(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    do {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        pid_ = -1;
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (std::chrono::steady_clock::now() < end);
    return true;
  }
  int code() const { return code_; }
  void send(int signal) { ::kill(pid_, signal); }
  void kill_hard() {
    send(SIGKILL);
    wait();
  }
  std::string output() const { return base::read_file(output_); }

 private:
  std::filesystem::path output_;
  pid_t pid_ = -1;
  int code_ = -1;
};

struct Finished {
  int code = -1;
  std::string output;
};

inline Finished run_program(const std::vector<std::string>& arguments, const std::filesystem::path& output) {
  Program program(arguments, output);
  const int code = program.wait();
  return {code, program.output()};
}

}  // namespace e2e
