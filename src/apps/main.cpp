// The program: finds the subcommand, and turns what it throws into a message and an exit code.
//   0 done, 1 an error (2 where a command's answer may be 1), 2 not called as the usage says, 128 + signal stopped by
//   it
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>

#include <cstdio>
#include <string>

#include "apps/commands.h"
#include "base/error.h"
#include "base/log.h"

namespace {

void print_usage(std::FILE* out) {
  fmt::print(out, "usage: furlong COMMAND [ARGUMENTS]\n\nReinforcement learning of DeepSeek-V4.\n\n");
  for (const apps::Command& command : apps::all_commands())
    fmt::print(out, "  {:<10} {}\n", command.name, command.summary);
  fmt::print(out, "\n`furlong COMMAND --help` lists the arguments and settings of a command.\n");
}

const apps::Command* find_command(const std::string& name) {
  for (const apps::Command& command : apps::all_commands()) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

// Kernels have threads of their own, which sleep when there is nothing to do (base/parallel.h); libtorch's spin. Freed
// activations stay with the process: the next step asks for the same sizes again, and fresh pages cost more than the
// arithmetic of a tiny model.
void set_up_process() {
  at::set_num_threads(1);
  constexpr int kKeptBytes = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    print_usage(stdout);
    return 0;
  }
  const apps::Command* const command = find_command(name);
  const int error_code = command != nullptr ? command->error_code : 2;
  try {
    if (command == nullptr) throw apps::UsageError(fmt::format("furlong: there is no command \"{}\"", name));
    base::set_up_log("info");
    set_up_process();
    return command->run({argv[0], apps::Arguments(argv + 2, argv + argc)});
  } catch (const apps::UsageError& error) {
    fmt::print(stderr, "{}\n(--help says more)\n", error.what());
    return 2;
  } catch (const base::Error& error) {
    fmt::print(stderr, "error ({}): {}\n", base::to_string(error.code()), error.what());
    return error_code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error (a bug in Furlong, or a library that failed: please report it): {}\n", error.what());
    return error_code;
  }
}
