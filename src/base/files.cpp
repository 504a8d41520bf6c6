// POSIX files behind base/files.h.
#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace base {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_errno(const char* doing, const fs::path& path, int error) {
  const Code code = error == ENOENT ? Code::not_found : Code::unavailable;
  const char* hint = error == ENOSPC ? " (free some space, or point the run at another disk)" : "";
  fail(code, "{}: cannot {}: {}{}", path.string(), doing, std::strerror(error), hint);
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, mode_t mode = 0644) : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (fd_ < 0) fail_errno("open", path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

int64_t regular_size(int fd, const fs::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_errno("stat", path, errno);
  if (!S_ISREG(info.st_mode)) fail(Code::invalid_argument, "{}: not a regular file", path.string());
  return info.st_size;
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

std::string read_file(const fs::path& path, int64_t max_bytes) {
  const Descriptor file(path, O_RDONLY);
  const int64_t size = regular_size(file.get(), path);
  if (size > max_bytes) {
    fail(Code::invalid_argument, "{}: has {} bytes, more than the {} allowed for a file of this kind", path.string(),
         size, max_bytes);
  }
  std::string text(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("read", path, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

void sync_folder(const fs::path& folder) {
  const Descriptor dir(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(dir.get()) != 0) fail_errno("fsync", folder, errno);
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_errno("rename into place", to, errno);
  sync_folder(parent_of(to));
}

void write_file_atomic(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

int64_t free_bytes(const fs::path& path) {
  fs::path existing = fs::absolute(path);
  while (!fs::exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
  struct statvfs info {};
  if (::statvfs(existing.c_str(), &info) != 0) fail_errno("ask for free space", existing, errno);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const Descriptor file(path, O_RDONLY);
  size_ = regular_size(file.get(), path);
  if (size_ == 0) return;
  void* const data = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail_errno("map", path, errno);
  data_ = data;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
}

void MappedFile::release(size_t begin, size_t size) const {
  if (size == 0) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = begin / page * page;
  // A hint: nothing depends on its success.
  static_cast<void>(::madvise(static_cast<char*>(data_) + first, begin + size - first, MADV_DONTNEED));
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), temporary_(path_) {
  temporary_ += ".tmp";
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_errno("create", temporary_, errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("write", temporary_, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail_errno("fsync", temporary_, errno);
  ::close(std::exchange(fd_, -1));
  rename_durably(temporary_, path_);
}

}  // namespace base
