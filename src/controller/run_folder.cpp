// The lock is flock(2) on a file in the folder: the kernel lets go of it when the process ends, also by kill -9.
#include "controller/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace controller {
namespace fs = std::filesystem;
using base::Code;
namespace {

constexpr const char* kLockName = "lock";

// A run that was killed before it wrote anything leaves the lock file alone.
bool holds_nothing(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != kLockName) return false;
  }
  return true;
}

}  // namespace

RunFolder::RunFolder(fs::path path, Opening opening) : path_(std::move(path)) {
  if (path_.empty()) {
    base::fail(Code::invalid_argument, "run.dir is empty; it names the folder that the run writes into");
  }
  std::error_code error;
  if (fs::exists(path_, error) && !fs::is_directory(path_)) {
    base::fail(Code::invalid_argument, "{}: is a file, and the run needs a folder there; choose another run.dir",
               path_.string());
  }
  if (opening == Opening::resume && !fs::exists(path_)) {
    base::fail(Code::not_found, "{}: there is no run to resume; check run.dir, or start without --resume",
               path_.string());
  }
  fs::create_directories(path_, error);
  if (error) base::fail(Code::unavailable, "{}: cannot make the folder: {}", path_.string(), error.message());
  lock();
  if (opening == Opening::start && !holds_nothing(path_)) {
    ::close(lock_);
    base::fail(Code::invalid_argument,
               "{}: holds files already. Add --resume to go on with the run that lies there, or choose another run.dir",
               path_.string());
  }
}

RunFolder::~RunFolder() { ::close(lock_); }

void RunFolder::lock() {
  const fs::path file = path_ / kLockName;
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) base::fail(Code::unavailable, "{}: cannot open: {}", file.string(), std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int why = errno;
    ::close(lock_);
    if (why != EWOULDBLOCK) base::fail(Code::unavailable, "{}: cannot lock: {}", file.string(), std::strerror(why));
    base::fail(Code::unavailable, "{}: the run is in use by process {}; wait for it, or choose another run.dir",
               path_.string(), base::read_file(file, 64));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, pid.data(), pid.size(), 0) < 0) {
    const int why = errno;
    ::close(lock_);
    base::fail(Code::unavailable, "{}: cannot write: {}", file.string(), std::strerror(why));
  }
}

}  // namespace controller
