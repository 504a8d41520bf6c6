// How every subcommand reads its command line: settings as --section.key=value or --section.key value, a bare --key for
// a bool, and whatever else stands there in order. Help texts come from the settings.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "base/settings.h"

namespace apps {

using Arguments = std::vector<std::string>;

// How a subcommand was called: the program as it was named (for messages that say what to type next), and what stood
// after the name of the subcommand.
struct Call {
  std::string program;
  Arguments arguments;
};

// The command was not called as its usage says: main shows the message, names --help and exits with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a subcommand says about itself. `parameters`: how its positional arguments are shown, "[MODEL] FILE...".
struct Usage {
  std::string name, parameters, summary;
  size_t min_positional = 0, max_positional = 0;
};

struct CommandLine {
  std::vector<std::string> positional;
  std::vector<std::string> overrides;  // each "--key=value" or "--key" of a bool
  bool help = false;
};

// Cuts the arguments up; assigns nothing. Throws UsageError for what no subcommand takes, and for a count of positional
// arguments that the usage does not allow (not checked with --help).
CommandLine read_command_line(const base::Fields& fields, const Usage& usage, const Arguments& arguments);

// Assigns the overrides in order; an Error becomes a UsageError.
void apply_overrides(base::Fields& fields, const CommandLine& line);

// "usage: furlong NAME PARAMETERS [--key=value ...]", the summary, and every setting.
std::string help_text(base::Fields& fields, const Usage& usage);
// Prints it on standard output; returns the exit code 0.
int print_help(base::Fields& fields, const Usage& usage);

}  // namespace apps
