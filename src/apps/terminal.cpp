// Standard error as a terminal.
#include "apps/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

namespace apps {
namespace {

int columns_of_terminal() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

report::Terminal standard_error() {
  report::Terminal terminal;
  terminal.write = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  terminal.is_tty = ::isatty(STDERR_FILENO) == 1;
  terminal.columns = columns_of_terminal;
  return terminal;
}

}  // namespace apps
