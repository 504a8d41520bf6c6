// From masters to the shards of a model folder, one tensor in memory at a time.
#include "checkpoint/save.h"

#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "tensor/formats/block_scale.h"

namespace checkpoint {
namespace fs = std::filesystem;
namespace {

using base::Code;
using base::fail;
using model::StoredAs;
using model::TensorInfo;
using model::Weights;
using tensor::BlockFormat;
using tensor::Quantised;
using tensor::Tensor;
using tensor::TensorToWrite;

std::optional<BlockFormat> block_format(const TensorInfo& info, SaveAs as) {
  if (as != SaveAs::published) return std::nullopt;
  if (info.stored_as == StoredAs::e4m3_128x128) return BlockFormat::e4m3;
  if (info.stored_as == StoredAs::e2m1_1x32) return BlockFormat::e2m1;
  return std::nullopt;
}

at::ScalarType plain_dtype(const TensorInfo& info, SaveAs as) {
  if (info.stored_as == StoredAs::i64) return at::kLong;
  return as == SaveAs::f32 || info.published_f32() ? at::kFloat : at::kBFloat16;
}

at::ScalarType code_dtype(BlockFormat format) { return format == BlockFormat::e4m3 ? at::kFloat8_e4m3fn : at::kChar; }

std::string scale_name(const std::string& weight) {
  return weight.substr(0, weight.size() - std::string_view("weight").size()) + "scale";
}

// One tensor to write: the index-th of stored_tensors.
struct Item {
  TensorInfo info;
  Tensor master;  // a view
  bool scales = false;
};

// Quantises each weight once for its codes and its scales, which are fetched one after the other.
class Fetcher {
 public:
  Fetcher(const Weights& weights, SaveAs as) : as_(as) {
    weights.visit_named([&](const TensorInfo& info, const Tensor& master) {
      items_.push_back({info, master, false});
      if (block_format(info, as_)) items_.push_back({info, master, true});
    });
  }

  Tensor operator()(size_t index) {
    const Item& item = items_[index];
    const auto format = block_format(item.info, as_);
    if (!format) {
      const Tensor value = as_ == SaveAs::f32 ? item.master.detach() : model::published_value(item.info, item.master);
      return value.to(plain_dtype(item.info, as_));
    }
    if (quantised_name_ != item.info.name) {
      quantised_ = tensor::quantise_blocks(model::published_value(item.info, item.master), *format);
      quantised_name_ = item.info.name;
    }
    return item.scales ? quantised_.scales.view(at::kFloat8_e8m0fnu) : quantised_.codes.view(code_dtype(*format));
  }

 private:
  SaveAs as_;
  std::vector<Item> items_;
  std::string quantised_name_;
  Quantised quantised_;
};

base::Json config_json(const model::Config& config, SaveAs as) {
  base::Json json = config.to_json();
  json["torch_dtype"] = as == SaveAs::f32 ? "float32" : "bfloat16";
  if (as == SaveAs::published) {
    json["quantization_config"] = {{"quant_method", "fp8"},
                                   {"fmt", "e4m3"},
                                   {"activation_scheme", "dynamic"},
                                   {"scale_fmt", "ue8m0"},
                                   {"weight_block_size", {128, 128}}};
  }
  return json;
}

int64_t total_bytes(const std::vector<TensorToWrite>& tensors) {
  int64_t bytes = 0;
  for (const TensorToWrite& tensor : tensors) bytes += tensor.size_bytes();
  return bytes;
}

}  // namespace

std::vector<TensorToWrite> stored_tensors(const Weights& weights, SaveAs as) {
  std::vector<TensorToWrite> tensors;
  weights.visit_named([&](const TensorInfo& info, const Tensor&) {
    const auto format = block_format(info, as);
    if (!format) {
      tensors.push_back({info.name, plain_dtype(info, as), info.shape});
    } else {
      tensors.push_back({info.name, code_dtype(*format), tensor::code_shape(info.shape, *format)});
      tensors.push_back({scale_name(info.name), at::kFloat8_e8m0fnu, tensor::scale_shape(info.shape, *format)});
    }
  });
  return tensors;
}

void save_weights(const fs::path& folder, const Weights& weights, SaveAs as, int64_t max_shard_bytes) {
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder))) {
    fail(Code::invalid_argument, "{}: is there already; choose another folder, or remove it", folder.string());
  }
  const std::vector<TensorToWrite> tensors = stored_tensors(weights, as);
  const fs::path whole = fs::absolute(folder).lexically_normal();
  fs::path temporary = whole.has_filename() ? whole : whole.parent_path();
  const fs::path target = temporary;
  temporary += ".tmp";
  constexpr int64_t kSlack = int64_t{16} << 20;  // headers, config, index
  const int64_t needed = total_bytes(tensors) + kSlack, available = base::free_bytes(target);
  if (needed > available) {
    fail(Code::unavailable, "{}: saving needs {} MiB, the disk has {} MiB free; free some space or choose another disk",
         target.string(), needed >> 20, available >> 20);
  }
  fs::remove_all(temporary);
  fs::create_directories(temporary);
  Fetcher fetch(weights, as);
  tensor::write_safetensors_folder(temporary, tensors, std::ref(fetch), max_shard_bytes, {{"format", "pt"}});
  base::write_file_atomic(temporary / "config.json", config_json(weights.config, as).dump(2) + "\n");
  base::rename_durably(temporary, target);
}

}  // namespace checkpoint
