// Checks before anything is written.
#include "checkpoint/new_folder.h"

#include "base/error.h"
#include "base/files.h"

namespace checkpoint {

namespace fs = std::filesystem;
using base::Code;
using base::fail;

NewFolder new_folder(const fs::path& folder, const std::string& suffix) {
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder))) {
    fail(Code::invalid_argument, "{}: is there already; choose another folder, or remove it", folder.string());
  }
  NewFolder made;
  made.target = fs::absolute(folder).lexically_normal();
  if (!made.target.has_filename()) made.target = made.target.parent_path();
  made.unfinished = made.target;
  made.unfinished += suffix;
  return made;
}

void check_free_space(const fs::path& folder, int64_t bytes) {
  constexpr int64_t kSlack = int64_t{16} << 20;
  const int64_t needed = bytes + kSlack, available = base::free_bytes(folder);
  if (needed <= available) return;
  fail(Code::unavailable, "{}: needs {} MiB, the disk has {} MiB free; free some space or choose another disk",
       folder.string(), needed >> 20, available >> 20);
}

}  // namespace checkpoint
