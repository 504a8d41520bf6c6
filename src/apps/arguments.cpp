// Reading of command lines.
#include "apps/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace apps {
namespace {

bool is_option(const std::string& argument) { return argument.starts_with("--") && argument.size() > 2; }

bool is_bool(const base::Fields& fields, const std::string& name) {
  return std::any_of(fields.begin(), fields.end(), [&](const base::Field& field) {
    return field.kind == base::FieldKind::boolean && field.name == name;
  });
}

constexpr size_t kHelpColumns = 100;

// Paragraphs of at most kHelpColumns; a line that begins with a blank stays as it is.
std::string wrapped(const std::string& text) {
  std::string result;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string line = text.substr(start, end - start);
    while (line.size() > kHelpColumns && line.front() != ' ') {
      const size_t blank = line.rfind(' ', kHelpColumns);
      if (blank == std::string::npos) break;
      result += line.substr(0, blank) + "\n";
      line.erase(0, blank + 1);
    }
    result += line + "\n";
    start = end + 1;
  }
  return result;
}

void check_positional(const Usage& usage, const CommandLine& line) {
  const size_t count = line.positional.size();
  if (count < usage.min_positional) {
    throw UsageError(
        fmt::format("furlong {}: an argument is missing: furlong {} {}", usage.name, usage.name, usage.parameters));
  }
  if (count > usage.max_positional) {
    throw UsageError(fmt::format("furlong {}: unexpected argument \"{}\" (a setting is written --key=value)",
                                 usage.name, line.positional[usage.max_positional]));
  }
}

}  // namespace

CommandLine read_command_line(const base::Fields& fields, const Usage& usage, const Arguments& arguments) {
  CommandLine line;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      line.help = true;
    } else if (!is_option(argument)) {
      if (argument.size() > 1 && argument.front() == '-') {
        throw UsageError(
            fmt::format("furlong {}: unknown option \"{}\": options have two dashes", usage.name, argument));
      }
      line.positional.push_back(argument);
    } else if (argument.find('=') != std::string::npos || is_bool(fields, argument.substr(2))) {
      line.overrides.push_back(argument);
    } else if (i + 1 < arguments.size() && !is_option(arguments[i + 1])) {
      line.overrides.push_back(argument + "=" + arguments[++i]);
    } else {
      line.overrides.push_back(argument);  // without a value: refused when it is assigned, with the name known there
    }
  }
  if (!line.help) check_positional(usage, line);
  return line;
}

void apply_overrides(base::Fields& fields, const CommandLine& line) {
  try {
    for (const std::string& argument : line.overrides) base::override_setting(fields, argument);
  } catch (const base::Error& error) {
    throw UsageError(error.what());
  }
}

std::string help_text(base::Fields& fields, const Usage& usage) {
  const std::string parameters = usage.parameters.empty() ? "" : " " + usage.parameters;
  const std::string settings = base::settings_help(fields);
  return fmt::format("usage: furlong {}{} [--key=value ...]\n\n{}{}{}", usage.name, parameters, wrapped(usage.summary),
                     settings.empty() ? "" : "\n", settings);
}

int print_help(base::Fields& fields, const Usage& usage) {
  fmt::print("{}", help_text(fields, usage));
  return 0;
}

}  // namespace apps
