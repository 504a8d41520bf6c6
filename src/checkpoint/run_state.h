// The checkpoints of a run: one folder, in it step_000020/ for each saved step, with tensors.safetensors, state.json
// and manifest.json (size and checksum of the other two). A step is written as step_000020.tmp and renamed when it is
// whole and on disk, so a kill at any moment leaves the steps that were there. What the tensors and the state mean is
// the caller's.
//
// Not for two processes at once on one folder. Functions are called by one thread at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "tensor/safetensors.h"

namespace checkpoint {

struct Retention {
  int64_t keep_last = 3;  // at least 1
  bool keep_best = true;  // beside them the step with the highest score; of equals the older
};

struct SavedStep {
  int64_t step = 0;
  std::filesystem::path folder;
  std::optional<double> score;
};

// What a step holds. Tensors are fetched and written one by one.
struct StepContents {
  std::vector<tensor::TensorToWrite> tensors;
  tensor::Fetch fetch;
  base::Json state;
  std::optional<double> score;  // higher is better; for keep_best
};

// A step that was verified when it was opened.
class LoadedStep {
 public:
  int64_t step() const { return step_; }
  const base::Json& state() const { return state_; }
  const std::vector<tensor::StoredTensor>& tensors() const { return file_.tensors(); }
  // CPU, own memory. Error{corruption} naming the file for a name that it does not hold.
  tensor::Tensor read(const std::string& name) const;

 private:
  friend class RunState;
  LoadedStep(int64_t step, const std::filesystem::path& folder);

  int64_t step_;
  tensor::SafetensorsFile file_;
  base::Json state_;
};

using FreeBytes = std::function<int64_t(const std::filesystem::path&)>;

class RunState {
 public:
  // Makes the folder and its parents, and removes what an interrupted save or removal left (with a warning).
  // Errors: invalid_argument when a file stands in its place, or for keep_last < 1.
  RunState(std::filesystem::path folder, Retention retention, FreeBytes free_bytes = base::free_bytes);

  // Saves a step; one of the same number is replaced. Then removes the steps that the retention does not keep.
  // Errors: unavailable when the disk has too little room, before anything is written; whatever fetch throws. Then the
  // steps that were there still are.
  void save(int64_t step, const StepContents& contents);

  // Complete steps, oldest first.
  std::vector<SavedStep> list() const;

  // Verifies every byte against the manifest. Errors: not_found for a step that is not there; corruption naming the
  // damaged file and the older step that can be used instead.
  LoadedStep load(int64_t step) const;
  // The newest complete step; nothing in a folder without one. Errors as load.
  std::optional<LoadedStep> load_newest() const;

  // Removes the steps after this one: a run that goes on from an older step must not find them again.
  void discard_after(int64_t step);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  void clean_up();
  void check_room(const StepContents& contents) const;
  void put_in_place(const std::filesystem::path& temporary, const std::filesystem::path& target);
  void remove(const std::filesystem::path& step_folder);
  void retain(int64_t just_saved);
  std::string older_step_text(int64_t step) const;

  std::filesystem::path folder_;
  Retention retention_;
  FreeBytes free_bytes_;
};

}  // namespace checkpoint
