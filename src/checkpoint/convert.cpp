// The plan of a conversion, its shards one after the other, and what goes along.
#include "checkpoint/convert.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/convert_state.h"
#include "checkpoint/convert_values.h"
#include "checkpoint/new_folder.h"
#include "checkpoint/pieces.h"

namespace checkpoint {
namespace fs = std::filesystem;
namespace {

using base::Code;
using base::fail;
using model::TensorInfo;
using tensor::BlockFormat;
using tensor::Shard;
using tensor::TensorToWrite;

constexpr const char* kPartial = ".partial";
const tensor::Metadata kMetadata = {{"format", "pt"}};

struct Plan {
  model::Profile profile;
  std::unordered_map<std::string, StoredPart> parts;  // by the name in the new files
  std::vector<Shard> shards;
  int64_t bytes = 0;
  bool real_scales = false;
};

// The form that a profile gives, but for scales that are kept with their codes.
Form target_form(const TensorInfo& info, const Form& from, const model::Profile& profile) {
  Form form = form_in(info, profile);
  if (form.format && form.format == from.format) form.scale_dtype = from.scale_dtype;
  return form;
}

Plan make_plan(const StoredWeights& in, const ConvertOptions& options) {
  Plan plan;
  plan.profile = model::Profile::parse(options.to);
  std::vector<TensorToWrite> tensors;
  const auto form_of = [&](const TensorInfo& info) { return target_form(info, in.form(info), plan.profile); };
  for (StoredPart& part : stored_parts(model::Weights::describe(in.config()), form_of)) {
    TensorToWrite tensor = part.to_write();
    if (options.names == Names::hf) tensor.name = to_hf(tensor.name);
    plan.bytes += tensor.size_bytes();
    plan.real_scales = plan.real_scales || (part.form.format && part.form.scale_dtype == at::kFloat);
    plan.parts.emplace(tensor.name, std::move(part));
    tensors.push_back(std::move(tensor));
  }
  plan.shards = tensor::cut_shards(tensors, options.shard_bytes);
  return plan;
}

// Refuses a file of the unfinished folder that is not the one of the plan.
void check_shard(const fs::path& path, const Shard& shard) {
  const tensor::SafetensorsFile file(path);
  std::map<std::string, const TensorToWrite*> wanted;
  for (const TensorToWrite& tensor : shard.tensors) wanted[tensor.name] = &tensor;
  const bool same =
      file.tensors().size() == wanted.size() &&
      std::all_of(file.tensors().begin(), file.tensors().end(), [&](const auto& stored) {
        const auto at = wanted.find(stored.name);
        return at != wanted.end() && at->second->dtype == stored.dtype && at->second->shape == stored.shape;
      });
  if (!same) {
    fail(Code::corruption, "{}: holds other tensors than this conversion writes there; remove the file and resume",
         path.string());
  }
}

// The shards of one conversion.
class Shards {
 public:
  Shards(const Plan& plan, const StoredWeights& in, const SeeProgress& see) : plan_(plan), see_(see), values_(in) {
    progress_.total = plan.bytes;
    progress_.num_shards = plan.shards.size();
  }

  // Writes all that are not there. False when stopped.
  bool write(const fs::path& folder, Converted& result) {
    for (const Shard& shard : plan_.shards) {
      ++progress_.shard;
      const fs::path path = folder / shard.file;
      if (fs::exists(path)) {
        check_shard(path, shard);
        ++result.num_files_kept;
        for (const TensorToWrite& tensor : shard.tensors) progress_.done += tensor.size_bytes();
      } else if (!write_one(path, shard)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool write_one(const fs::path& path, const Shard& shard) {
    tensor::SafetensorsWriter writer(path, shard.tensors, kMetadata);
    for (const TensorToWrite& tensor : writer.tensors()) {
      const bool complete = values_.stream(plan_.parts.at(tensor.name), [&](std::span<const std::byte> bytes) {
        writer.write(bytes);
        progress_.done += static_cast<int64_t>(bytes.size());
        return see_(progress_);
      });
      if (!complete) return false;
    }
    writer.commit();
    return true;
  }

  const Plan& plan_;
  const SeeProgress& see_;
  ConvertedValues values_;
  ConvertProgress progress_;
};

void write_config(const fs::path& folder, const StoredWeights& in, const Plan& plan) {
  base::Json config = base::read_json(in.folder() / "config.json");
  describe_forms(config, plan.profile, plan.real_scales);
  if (in.lacks_mtp()) config["num_nextn_predict_layers"] = 0;
  config["compressor_norm_dtype"] = in.config().compressor_norm_f32.value_or(false) ? "float32" : "bfloat16";
  base::write_file_atomic(folder / "config.json", config.dump(2) + "\n");
}

// Text files beside the weights that say how to use the model.
bool goes_along(const fs::path& path) {
  static const std::set<std::string> kinds = {".json", ".jinja", ".txt", ".model"};
  const std::string name = path.filename().string();
  if (name.starts_with('.') || name == "config.json" || name.ends_with(".index.json")) return false;
  return kinds.contains(path.extension().string()) || name.starts_with("LICENSE");
}

void copy_beside(const fs::path& from, const fs::path& to) {
  constexpr int64_t kMaxBytes = int64_t{1} << 28;
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file() && goes_along(entry.path()))
      base::write_file_atomic(to / entry.path().filename(), base::read_file(entry.path(), kMaxBytes));
  }
}

void count_forms(const StoredWeights& in, const Plan& plan, Converted& result) {
  for (const auto& [name, part] : plan.parts) {
    if (part.scales || !part.form.format) continue;
    ++(in.form(part.info).format == part.form.format ? result.kept : result.requantised);
  }
}

}  // namespace

Converted convert(const fs::path& in_folder, const fs::path& out, const ConvertOptions& options,
                  const SeeProgress& see) {
  const StoredWeights in(in_folder);
  in.check();
  const Plan plan = make_plan(in, options);
  const NewFolder place = new_folder(out, kPartial);
  if (!fs::exists(place.unfinished)) check_free_space(place.target, plan.bytes);
  begin_or_resume(place.unfinished, convert_state(in, options), options.resume);

  Converted result;
  result.unfinished = place.unfinished;
  result.bytes = plan.bytes;
  result.num_files = plan.shards.size();
  count_forms(in, plan, result);
  result.complete = Shards(plan, in, see).write(place.unfinished, result);
  if (!result.complete) return result;
  tensor::write_index(place.unfinished, plan.shards);
  copy_beside(in_folder, place.unfinished);
  write_config(place.unfinished, in, plan);

  const StoredWeights made(place.unfinished);
  made.check();
  result.verified = verify(in, made, [&](int64_t done, int64_t total) {
    return see({ConvertProgress::Stage::verify, done, total, plan.shards.size(), plan.shards.size()});
  });
  result.complete = result.verified.complete;
  if (!result.complete) return result;
  base::rename_durably(place.unfinished, place.target);
  end_convert(place.target);
  return result;
}

}  // namespace checkpoint
