// The subcommands of the program, a file each. Each returns the exit code of the process: 0, or 128 + signal when a run
// was told to stop. Errors are thrown: base::Error for what is wrong with files, settings or machine, UsageError for
// the command line.
#pragma once
#include <span>

#include "apps/arguments.h"

namespace apps {

int run_train(const Call& call);
int run_eval(const Call& call);
int run_generate(const Call& call);
int run_score(const Call& call);
int run_compare(const Call& call);
int run_convert(const Call& call);
int run_inspect(const Call& call);
int run_report(const Call& call);

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Call& call);
  int error_code = 1;  // exit code of an error; 2 where 1 is an answer
};
std::span<const Command> all_commands();

}  // namespace apps
