// Writing and comparing the state of a conversion.
#include "checkpoint/convert_state.h"

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"

namespace checkpoint {
namespace fs = std::filesystem;
namespace {

using base::Code;
using base::fail;
using base::Json;

constexpr const char* kStateName = "convert_state.json";
constexpr int64_t kMaxStateBytes = int64_t{1} << 26;
constexpr int64_t kFormat = 1;

Json file_facts(const tensor::SafetensorsFile& file) {
  const auto changed = fs::last_write_time(file.path()).time_since_epoch();
  return {{"bytes", file.size_bytes()},
          {"changed_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(changed).count()},
          {"header", base::hash_text(file.header_checksum())}};
}

// Where two states differ first: "input.model.safetensors", and both values. Empty where they are equal.
std::string first_difference(const Json& before, const Json& now, const std::string& name) {
  if (before == now) return {};
  if (!before.is_object() || !now.is_object())
    return fmt::format("{} was {}, it is {}", name, base::to_line(before), base::to_line(now));
  for (const auto* both : {&before, &now}) {
    for (const auto& [key, value] : both->items()) {
      const std::string inner = name.empty() ? key : name + ": " + key;
      if (!before.contains(key)) return inner + " was not there";
      if (!now.contains(key)) return inner + " is there no more";
      if (std::string found = first_difference(before[key], now[key], inner); !found.empty()) return found;
    }
  }
  return "the order of its fields";
}

}  // namespace

Json convert_state(const StoredWeights& in, const ConvertOptions& options) {
  Json files = Json::object();
  for (const tensor::SafetensorsFile& file : in.files().files()) {
    files[file.path().filename().string()] = file_facts(file);
  }
  const std::string config = base::read_file(in.folder() / "config.json");
  return {{"format", kFormat},
          {"to", options.to},
          {"names", options.names == Names::hf ? "hf" : "native"},
          {"shard_bytes", options.shard_bytes},
          {"config", base::hash_text(base::hash64(config))},
          {"input", files}};
}

void begin_or_resume(const fs::path& unfinished, const Json& state, bool resume) {
  const fs::path path = unfinished / kStateName;
  if (!fs::exists(unfinished)) {
    fs::create_directories(unfinished);
    base::write_file_atomic(path, state.dump(1) + "\n");
    return;
  }
  if (!resume) {
    fail(Code::invalid_argument,
         "{}: an unfinished conversion is there; add --resume to go on with it, or remove the folder",
         unfinished.string());
  }
  if (!fs::exists(path)) {
    fail(Code::invalid_argument, "{}: holds no {}, so what it was made from is not known; remove the folder",
         unfinished.string(), kStateName);
  }
  const std::string difference = first_difference(base::read_json(path, kMaxStateBytes), state, "");
  if (difference.empty()) return;
  fail(Code::invalid_argument,
       "{}: was begun from another input or with other options: {}; give the same ones, or remove the folder",
       unfinished.string(), difference);
}

void end_convert(const fs::path& finished) {
  fs::remove(finished / kStateName);
  base::sync_folder(finished);
}

}  // namespace checkpoint
