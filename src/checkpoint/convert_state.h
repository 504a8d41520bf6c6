// What an unfinished conversion was begun from and how: the file convert_state.json in its folder.
#pragma once
#include <filesystem>

#include "base/json.h"
#include "checkpoint/convert.h"
#include "checkpoint/stored_weights.h"

namespace checkpoint {

// Options, and of each file of the input name, size, time of its last change and checksum of its header.
base::Json convert_state(const StoredWeights& in, const ConvertOptions& options);

// Makes the unfinished folder with its state; or, if it is there, compares. Errors: invalid_argument when it is there
// and resume is not set, when it holds no state, and when the state is another, naming the first thing that differs.
void begin_or_resume(const std::filesystem::path& unfinished, const base::Json& state, bool resume);

// Takes the state out of the folder that is finished.
void end_convert(const std::filesystem::path& finished);

}  // namespace checkpoint
