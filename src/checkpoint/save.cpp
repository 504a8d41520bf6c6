// From masters to the shards of a model folder, one tensor in memory at a time.
#include "checkpoint/save.h"

#include "base/files.h"
#include "base/json.h"
#include "checkpoint/new_folder.h"
#include "checkpoint/stored_form.h"

namespace checkpoint {
namespace fs = std::filesystem;
namespace {

using model::TensorInfo;
using model::Weights;
using tensor::Quantised;
using tensor::Tensor;
using tensor::TensorToWrite;

model::Profile profile_of(const model::Config& config, SaveAs as) {
  const char* const published = config.expert_dtype == "fp4" ? "fp8_fp4" : "fp8";
  return model::Profile::parse(as == SaveAs::f32 ? "f32" : as == SaveAs::bf16 ? "bf16" : published);
}

std::vector<StoredPart> parts_of(const Weights& weights, const model::Profile& profile) {
  return stored_parts(weights, [&](const TensorInfo& info) { return form_in(info, profile); });
}

std::vector<TensorToWrite> to_write(const std::vector<StoredPart>& parts) {
  std::vector<TensorToWrite> tensors;
  tensors.reserve(parts.size());
  for (const StoredPart& part : parts) tensors.push_back(part.to_write());
  return tensors;
}

// Quantises each weight once for its codes and its scales, which are fetched one after the other.
class Fetcher {
 public:
  Fetcher(const Weights& weights, std::vector<StoredPart> parts) : parts_(std::move(parts)) {
    weights.visit_named([&](const TensorInfo& info, const Tensor& master) { masters_[info.name] = master; });
  }

  Tensor operator()(size_t index) {
    const auto& [info, form, scales] = parts_[index];
    const Tensor& master = masters_.at(info.name);
    if (!form.format) return form.dtype == at::kFloat ? master.detach().to(at::kFloat) : published_value(info, master);
    if (quantised_name_ != info.name) {
      quantised_ = tensor::quantise_blocks(published_value(info, master), *form.format);
      quantised_name_ = info.name;
    }
    return scales ? quantised_.scales.view(form.scale_dtype) : quantised_.codes.view(form.dtype);
  }

 private:
  std::vector<StoredPart> parts_;
  std::unordered_map<std::string, Tensor> masters_;  // views
  std::string quantised_name_;
  Quantised quantised_;
};

int64_t total_bytes(const std::vector<TensorToWrite>& tensors) {
  int64_t bytes = 0;
  for (const TensorToWrite& tensor : tensors) bytes += tensor.size_bytes();
  return bytes;
}

}  // namespace

std::vector<TensorToWrite> stored_tensors(const Weights& weights, SaveAs as) {
  return to_write(parts_of(weights, profile_of(weights.config, as)));
}

void save_weights(const fs::path& folder, const Weights& weights, SaveAs as, int64_t max_shard_bytes) {
  const NewFolder place = new_folder(folder, ".tmp");
  const model::Profile profile = profile_of(weights.config, as);
  const std::vector<StoredPart> parts = parts_of(weights, profile);
  const std::vector<TensorToWrite> tensors = to_write(parts);
  check_free_space(place.target, total_bytes(tensors));
  fs::remove_all(place.unfinished);
  fs::create_directories(place.unfinished);
  Fetcher fetch(weights, parts);
  tensor::write_safetensors_folder(place.unfinished, tensors, std::ref(fetch), max_shard_bytes, {{"format", "pt"}});
  base::Json config = weights.config.to_json();
  describe_forms(config, profile);
  base::write_file_atomic(place.unfinished / "config.json", config.dump(2) + "\n");
  base::rename_durably(place.unfinished, place.target);
}

}  // namespace checkpoint
