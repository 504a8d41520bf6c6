// POSIX appends.
#include "report/jsonl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace report {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_errno(const char* doing, const fs::path& path, int error) {
  base::fail(base::Code::unavailable, "{}: cannot {}: {}", path.string(), doing, std::strerror(error));
}

int64_t size_of(int fd, const fs::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_errno("stat", path, errno);
  return info.st_size;
}

// Where the last whole line ends.
int64_t end_of_last_line(int fd, const fs::path& path) {
  std::array<char, 65536> buffer;
  int64_t end = size_of(fd, path);
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(buffer.size()));
    const ssize_t n = ::pread(fd, buffer.data(), static_cast<size_t>(end - begin), begin);
    if (n < 0 && errno == EINTR) continue;
    if (n != end - begin) fail_errno("read", path, n < 0 ? errno : EIO);
    for (int64_t i = end - begin; i-- > 0;) {
      if (buffer[static_cast<size_t>(i)] == '\n') return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

JsonLines::JsonLines(fs::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_errno("open", path_, errno);
  try {
    const int64_t end = end_of_last_line(fd_, path_);
    if (end != size_of(fd_, path_) && ::ftruncate(fd_, end) != 0) fail_errno("repair", path_, errno);
    base::sync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

JsonLines::~JsonLines() { ::close(fd_); }

void JsonLines::append(const base::Json& line) {
  const std::string text = base::to_line(line) + "\n";
  const int64_t before = size_of(fd_, path_);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      if (::ftruncate(fd_, before) != 0) fail_errno("write, nor repair,", path_, error);
      fail_errno("write", path_, error);
    }
    done += static_cast<size_t>(n);
  }
  if (::fdatasync(fd_) != 0) fail_errno("fdatasync", path_, errno);
}

void for_each_line(const fs::path& path, const std::function<void(const base::Json&, const std::string&)>& use) {
  if (!fs::exists(path)) return;
  const base::MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  int64_t number = 0;
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    const std::string where = fmt::format("{}:{}", path.string(), ++number);
    use(base::parse_json(rest.substr(0, end), where), where);
    rest.remove_prefix(end + 1);
  }
}

std::vector<base::Json> read_lines(const fs::path& path) {
  std::vector<base::Json> lines;
  for_each_line(path, [&](const base::Json& line, const std::string&) { lines.push_back(line); });
  return lines;
}

void drop_lines_after(const fs::path& path, int64_t last_step) {
  if (!fs::exists(path)) return;
  base::AtomicFile kept(path);
  for_each_line(path, [&](const base::Json& line, const std::string&) {
    const bool has_step = line.is_object() && line.contains("step") && line["step"].is_number_integer();
    if (!has_step || line["step"].get<int64_t>() <= last_step) kept.write(base::to_line(line) + "\n");
  });
  kept.commit();
}

}  // namespace report
