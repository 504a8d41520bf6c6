// The files of one saved step and their manifest: writing, and verifying what is there.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/run_state.h"

namespace checkpoint {

inline constexpr const char* kTensorsName = "tensors.safetensors";
inline constexpr const char* kStateName = "state.json";
inline constexpr const char* kManifestName = "manifest.json";

std::string step_folder_name(int64_t step);  // "step_000020"
// The step of such a name; nothing for any other name.
std::optional<int64_t> step_of_name(const std::string& name);

// Writes all files into an existing empty folder, each durable.
void write_step(const std::filesystem::path& folder, int64_t step, const StepContents& contents);

struct StepManifest {
  int64_t step = 0;
  std::optional<double> score;
};

// The manifest of a folder, or nothing where there is none that can be read: such a folder is no complete step.
std::optional<StepManifest> read_step_manifest(const std::filesystem::path& folder);

// Compares size and checksum of each file. Errors: corruption naming the first file that differs and how.
void verify_step(const std::filesystem::path& folder);

}  // namespace checkpoint
