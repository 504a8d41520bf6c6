// Files of JSON lines that grow while a run lives and are readable whatever ended it. A line is written by one call and
// made durable before append() returns; a line that a crash cut off has no newline and counts as never written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/json.h"

namespace report {

// Appends. One writer at a time; readers may read at any moment.
class JsonLines {
 public:
  // Opens or makes the file and cuts off a last line without its newline. Error{unavailable} naming the file.
  explicit JsonLines(std::filesystem::path path);
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;
  ~JsonLines();

  // Error{unavailable} (disk full, say); what was written of the line is then cut off again.
  void append(const base::Json& line);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// Calls use(line, "path:number") for every whole line in order; a last line without its newline is left out. A file
// that does not exist has no lines. Error{corruption} naming file and line for one that is no JSON.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(const base::Json& line, const std::string& where)>& use);
std::vector<base::Json> read_lines(const std::filesystem::path& path);

// Drops the lines whose "step" is above last_step, so that steps done again do not appear twice. The file changes as a
// whole or not at all. Lines without an integer "step" stay.
void drop_lines_after(const std::filesystem::path& path, int64_t last_step);

}  // namespace report
