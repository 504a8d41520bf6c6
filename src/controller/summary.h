// The last words of a run: what it changed, in a table and in answers, and where it lies.
#pragma once
#include <filesystem>
#include <string>

namespace controller {

// From the files of the run, so it tells of steps before a resume as well: pass@k, greedy and truncated of each set, by
// value of its metadata keys, at the first and the last evaluation; a few problems whose answers changed most. Empty
// when nothing was evaluated. Errors: corruption naming the file.
std::string run_summary(const std::filesystem::path& run);

}  // namespace controller
