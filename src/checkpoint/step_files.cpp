// The files inside one step folder, and the manifest that vouches for them.
#include "checkpoint/step_files.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"

namespace checkpoint {
namespace fs = std::filesystem;
namespace {

using base::Code;
using base::fail;
using base::Json;

constexpr const char* kVerified[] = {kTensorsName, kStateName};
constexpr int64_t kMaxManifestBytes = 1 << 20;
constexpr int64_t kFormat = 1;

struct FileFacts {
  int64_t bytes = 0;
  std::string checksum;
  bool operator==(const FileFacts&) const = default;
};

FileFacts facts_of(const fs::path& path) {
  constexpr size_t kPiece = size_t{1} << 24;  // of a mapped file that is in memory at once
  const base::MappedFile file(path);
  base::Hash64 hash;
  for (size_t at = 0; at < file.bytes().size(); at += kPiece) {
    const auto piece = file.bytes().subspan(at, std::min(kPiece, file.bytes().size() - at));
    hash.update(piece);
    file.release(at, piece.size());
  }
  return {static_cast<int64_t>(file.bytes().size()), base::hash_text(hash.digest())};
}

// The manifest's line for a file. Error{corruption} where it is not as write_step writes it.
FileFacts claimed_facts(const Json& manifest, const char* name, const fs::path& path) {
  const auto files = manifest.find("files");
  if (files != manifest.end() && files->is_object() && files->contains(name)) {
    const Json& entry = (*files)[name];
    const auto bytes = entry.find("bytes"), checksum = entry.find("checksum");
    if (bytes != entry.end() && bytes->is_number_integer() && checksum != entry.end() && checksum->is_string()) {
      return {bytes->get<int64_t>(), checksum->get<std::string>()};
    }
  }
  fail(Code::corruption, "{}: does not list size and checksum of {}", path.string(), name);
}

}  // namespace

std::string step_folder_name(int64_t step) { return fmt::format("step_{:06}", step); }

std::optional<int64_t> step_of_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = -1;
  const char* const begin = name.data() + kPrefix.size();
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || at != end || name != step_folder_name(step)) return std::nullopt;
  return step;
}

void write_step(const fs::path& folder, int64_t step, const StepContents& contents) {
  tensor::write_safetensors(folder / kTensorsName, contents.tensors, contents.fetch);
  base::write_file_atomic(folder / kStateName, contents.state.dump(1) + "\n");
  Json manifest = {{"format", kFormat}, {"step", step}, {"score", nullptr}, {"files", Json::object()}};
  if (contents.score) manifest["score"] = *contents.score;
  for (const char* name : kVerified) {
    const FileFacts facts = facts_of(folder / name);
    manifest["files"][name] = {{"bytes", facts.bytes}, {"checksum", facts.checksum}};
  }
  base::write_file_atomic(folder / kManifestName, manifest.dump(1) + "\n");
}

std::optional<StepManifest> read_step_manifest(const fs::path& folder) {
  try {
    const Json json = base::read_json(folder / kManifestName, kMaxManifestBytes);
    StepManifest manifest;
    manifest.step = json.at("step").get<int64_t>();
    if (json.at("format") != kFormat) return std::nullopt;
    if (json.at("score").is_number()) manifest.score = json.at("score").get<double>();
    return manifest;
  } catch (const base::Error&) {
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void verify_step(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  const Json manifest = base::read_json(path, kMaxManifestBytes);
  for (const char* name : kVerified) {
    const FileFacts claimed = claimed_facts(manifest, name, path);
    const fs::path file = folder / name;
    if (!fs::exists(file)) fail(Code::corruption, "{}: is missing", file.string());
    const FileFacts real = facts_of(file);
    if (real == claimed) continue;
    fail(Code::corruption,
         "{}: is damaged: it has {} bytes and checksum {}, it was written with {} bytes and checksum {}", file.string(),
         real.bytes, real.checksum, claimed.bytes, claimed.checksum);
  }
}

}  // namespace checkpoint
