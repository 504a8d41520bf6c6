// Standard input and output.
#include "apps/standard_io.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace apps {
namespace {

[[noreturn]] void fail_output() {
  base::fail(base::Code::unavailable, "standard output: cannot write: {}", std::strerror(errno));
}

}  // namespace

std::string read_standard_input() {
  std::string text;
  char part[1 << 16];
  while (const size_t n = std::fread(part, 1, sizeof(part), stdin)) {
    text.append(part, n);
    if (static_cast<int64_t>(text.size()) > kMaxInputBytes) {
      base::fail(base::Code::invalid_argument, "standard input: more than {} bytes; give it in parts", kMaxInputBytes);
    }
  }
  if (std::ferror(stdin)) base::fail(base::Code::unavailable, "standard input: cannot read: {}", std::strerror(errno));
  return text;
}

std::string read_input_file(const std::string& path) { return base::read_file(path, kMaxInputBytes); }

void write_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_output();
}

void write_line(std::string_view line) {
  write_text(line);
  write_text("\n");
}

void flush_output() {
  if (std::fflush(stdout) != 0) fail_output();
}

}  // namespace apps
