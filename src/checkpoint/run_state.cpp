// Committing, listing, loading and forgetting steps of a run.
#include "checkpoint/run_state.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/step_files.h"
#include "tensor/safetensors_header.h"

namespace checkpoint {
namespace fs = std::filesystem;
namespace {

using base::Code;
using base::fail;

constexpr const char* kTemporary = ".tmp";
constexpr int64_t kMaxStateBytes = int64_t{1} << 32;

// Two folders change places in one step: there is no moment without the target.
void exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return;
  fail(Code::unavailable, "{}: cannot change places with {}: {}", b.string(), a.string(), std::strerror(errno));
}

fs::path temporary_of(fs::path path) { return path += kTemporary; }

}  // namespace

LoadedStep::LoadedStep(int64_t step, const fs::path& folder)
    : step_(step), file_(folder / kTensorsName), state_(base::read_json(folder / kStateName, kMaxStateBytes)) {}

tensor::Tensor LoadedStep::read(const std::string& name) const {
  for (const tensor::StoredTensor& stored : file_.tensors()) {
    if (stored.name == name) return file_.read(stored);
  }
  fail(Code::corruption, "{}: has no tensor {}; it was saved by another version or with other settings",
       file_.path().string(), tensor::quote_name(name));
}

RunState::RunState(fs::path folder, Retention retention, FreeBytes free_bytes)
    : folder_(std::move(folder)), retention_(retention), free_bytes_(std::move(free_bytes)) {
  if (retention_.keep_last < 1) {
    fail(Code::invalid_argument, "{}: keep_last is {}, it should be at least 1", folder_.string(),
         retention_.keep_last);
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!fs::is_directory(folder_)) {
    fail(Code::invalid_argument, "{}: cannot be the folder of the checkpoints: {}", folder_.string(),
         error ? error.message() : "a file stands in its place");
  }
  clean_up();
}

void RunState::clean_up() {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_") && name.ends_with(kTemporary)) leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) {
    SPDLOG_WARN("{}: left by an interrupted save; removed", path.string());
    fs::remove_all(path);
  }
}

std::vector<SavedStep> RunState::list() const {
  std::vector<SavedStep> steps;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::optional<int64_t> step = step_of_name(entry.path().filename().string());
    if (!step || !entry.is_directory()) continue;
    const std::optional<StepManifest> manifest = read_step_manifest(entry.path());
    if (!manifest || manifest->step != *step) {
      SPDLOG_WARN("{}: is not a complete checkpoint (no readable {}); ignored", entry.path().string(), kManifestName);
      continue;
    }
    steps.push_back({*step, entry.path(), manifest->score});
  }
  std::sort(steps.begin(), steps.end(), [](const SavedStep& a, const SavedStep& b) { return a.step < b.step; });
  return steps;
}

void RunState::check_room(const StepContents& contents) const {
  constexpr int64_t kSlack = int64_t{16} << 20;  // header, state, manifest
  int64_t needed = kSlack;
  for (const tensor::TensorToWrite& tensor : contents.tensors) needed += tensor.size_bytes();
  const int64_t available = free_bytes_(folder_);
  if (needed <= available) return;
  fail(Code::unavailable,
       "{}: a checkpoint needs {} MiB, the disk has {} MiB free; free some space, keep fewer checkpoints, or "
       "point the run at another disk",
       folder_.string(), needed >> 20, available >> 20);
}

void RunState::save(int64_t step, const StepContents& contents) {
  CHECK(step >= 0);
  check_room(contents);
  const fs::path target = folder_ / step_folder_name(step), temporary = temporary_of(target);
  fs::remove_all(temporary);
  fs::create_directories(temporary);
  try {
    write_step(temporary, step, contents);
  } catch (...) {
    std::error_code ignored;  // the first error is the one to tell
    fs::remove_all(temporary, ignored);
    throw;
  }
  put_in_place(temporary, target);
  retain(step);
}

void RunState::put_in_place(const fs::path& temporary, const fs::path& target) {
  if (!fs::exists(target)) return base::rename_durably(temporary, target);
  exchange(temporary, target);
  base::sync_folder(folder_);
  fs::remove_all(temporary);
}

// A step that is half removed must not look complete: it loses its name first.
void RunState::remove(const fs::path& step_folder) {
  const fs::path temporary = temporary_of(step_folder);
  fs::remove_all(temporary);
  base::rename_durably(step_folder, temporary);
  fs::remove_all(temporary);
}

void RunState::retain(int64_t just_saved) {
  const std::vector<SavedStep> steps = list();
  const SavedStep* best = nullptr;
  for (const SavedStep& step : steps) {
    if (step.score && (best == nullptr || *step.score > *best->score)) best = &step;
  }
  const auto num_old = static_cast<int64_t>(steps.size()) - retention_.keep_last;
  for (int64_t i = 0; i < num_old; ++i) {
    const SavedStep& step = steps[static_cast<size_t>(i)];
    if (step.step == just_saved || (retention_.keep_best && &step == best)) continue;
    remove(step.folder);
  }
}

std::string RunState::older_step_text(int64_t step) const {
  std::vector<SavedStep> steps = list();
  while (!steps.empty()) {
    const SavedStep older = steps.back();
    steps.pop_back();
    if (older.step >= step) continue;
    try {
      verify_step(older.folder);
      return fmt::format("the older {} is whole: resume from step {}", older.folder.string(), older.step);
    } catch (const base::Error&) {  // damaged as well: look further back
    }
  }
  return "there is no older checkpoint that is whole: start the run anew";
}

LoadedStep RunState::load(int64_t step) const {
  const fs::path folder = folder_ / step_folder_name(step);
  if (!fs::is_directory(folder)) {
    fail(Code::not_found, "{}: there is no checkpoint of step {}; {}", folder_.string(), step, older_step_text(step));
  }
  try {
    verify_step(folder);
    return LoadedStep(step, folder);
  } catch (const base::Error& error) {
    fail(error.code() == Code::unavailable ? Code::unavailable : Code::corruption, "{}; {}", error.what(),
         older_step_text(step));
  }
}

std::optional<LoadedStep> RunState::load_newest() const {
  const std::vector<SavedStep> steps = list();
  if (steps.empty()) return std::nullopt;
  return load(steps.back().step);
}

void RunState::discard_after(int64_t step) {
  for (const SavedStep& saved : list()) {
    if (saved.step > step) remove(saved.folder);
  }
}

}  // namespace checkpoint
