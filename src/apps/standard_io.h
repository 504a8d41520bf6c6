// Standard input and output of subcommands whose result is text: a write that fails is an error, not a shorter result.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace apps {

inline constexpr int64_t kMaxInputBytes = int64_t{1} << 30;

// Everything up to its end. Error{invalid_argument}: more than kMaxInputBytes; {unavailable}: it cannot be read.
std::string read_standard_input();
std::string read_input_file(const std::string& path);  // base::read_file with the same limit

// Error{unavailable} when standard output is closed or full. What was written appears at the latest at flush_output().
void write_text(std::string_view text);
void write_line(std::string_view line);
void flush_output();

}  // namespace apps
