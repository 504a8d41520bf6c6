// A subcommand called as from the command line, with what it wrote to standard output.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "apps/commands.h"

namespace test {

struct Ran {
  int code = -1;
  std::string output;
};

inline Ran run(int (*command)(const apps::Call&), const apps::Arguments& arguments) {
  testing::internal::CaptureStdout();
  Ran ran;
  try {
    ran.code = command({"furlong", arguments});
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  std::fflush(stdout);
  ran.output = testing::internal::GetCapturedStdout();
  return ran;
}

}  // namespace test
