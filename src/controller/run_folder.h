// The folder of a run: who may write into it, and where things lie in it.
//
//   lock  settings.json  settings.toml    the settings it was started with, or resumed with last
//   checkpoints/step_000020/              after step 20 of learning; checkpoints/warmup/ until learning begins
//   metrics.jsonl  eval.jsonl  events.jsonl  rollouts/    report/run_log.h
//   model/                                the policy at the end, in Hugging Face format
#pragma once
#include <filesystem>

namespace controller {

enum class Opening { start, resume };

// Holds the folder for the life of the object: a second process that opens it gets Error{unavailable} naming the
// process that has it. The lock ends with the process, however it ends.
class RunFolder {
 public:
  // start: makes the folder (parents too). Errors (invalid_argument): it holds files already, or is a file.
  // resume: Error{not_found} if there is no such folder.
  RunFolder(std::filesystem::path path, Opening opening);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path settings_json() const { return path_ / "settings.json"; }
  std::filesystem::path settings_toml() const { return path_ / "settings.toml"; }
  std::filesystem::path evaluations() const { return path_ / "eval.jsonl"; }
  std::filesystem::path rollouts() const { return path_ / "rollouts"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path warmup_checkpoints() const { return path_ / "checkpoints" / "warmup"; }
  std::filesystem::path model() const { return path_ / "model"; }

 private:
  void lock();

  std::filesystem::path path_;
  int lock_ = -1;  // descriptor of the lock file
};

}  // namespace controller
