// A model folder that is made under another name and renamed into place when it is whole.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace checkpoint {

struct NewFolder {
  std::filesystem::path target;      // absolute, without a slash at the end
  std::filesystem::path unfinished;  // target + suffix, beside it
};
// Error{invalid_argument} when something stands at the target that is not an empty folder. Makes nothing.
NewFolder new_folder(const std::filesystem::path& folder, const std::string& suffix);

// Error{unavailable} when the disk has less room at `folder` than `bytes` and some slack for headers and config.
void check_free_space(const std::filesystem::path& folder, int64_t bytes);

}  // namespace checkpoint
