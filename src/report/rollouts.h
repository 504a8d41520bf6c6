// Every sample of a step as a file that people and other programs can read: rollouts/step_000012.jsonl, or for an
// evaluation rollouts/eval_<set>_000010.jsonl. One line per sample:
//   {"step", "group_id", "index", "problem", "prompt", "label", "metadata", "response", "reward", "reward_note",
//   "finish", "seed",
//    "versions": [[version, number of tokens], ...], "response_ids": [...], "log_probs": [...]}
// Numbers are exact (an f32 as the shortest text that reads back the same). A file appears whole or not at all.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/sample.h"

namespace report {

// set: of an evaluation; empty for a training step. In the file name what is not a letter, digit, '.', '-' or '_'
// becomes '_'.
std::filesystem::path rollout_path(const std::filesystem::path& folder, int64_t step, const std::string& set = "");

// Makes the folder if need be and replaces a file of that name.
void write_rollouts(const std::filesystem::path& path, int64_t step, std::span<const data::Group> groups);

// All but the prompt's token ids. Error{not_found}, and {corruption} naming file and line.
std::vector<data::Group> read_rollouts(const std::filesystem::path& path);

struct RolloutFile {
  std::filesystem::path path;
  int64_t step = 0;
  std::string set;  // empty for a training step
  bool operator==(const RolloutFile&) const = default;
};

// The files of a folder, training steps first, then by set, each by step. Other files are not listed.
std::vector<RolloutFile> list_rollouts(const std::filesystem::path& folder);

// Deletes the files of steps above last_step, and temporary files that a crash left.
void drop_rollouts_after(const std::filesystem::path& folder, int64_t last_step);

}  // namespace report
