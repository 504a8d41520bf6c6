// The published layouts.
#include "checkpoint/stored_form.h"

#include "model/run_weights.h"

namespace checkpoint {

using model::StoredAs;
using model::TensorInfo;
using tensor::BlockFormat;

Form form_in(const TensorInfo& info, const model::Profile& profile) {
  if (info.stored_as == StoredAs::i64) return {at::kLong, std::nullopt};
  const auto format = model::run_format(info, profile);
  if (format) return {*format == BlockFormat::e4m3 ? at::kFloat8_e4m3fn : at::kChar, format};
  return {profile.round_bf16 && !info.published_f32() ? at::kBFloat16 : at::kFloat, std::nullopt};
}

std::string scale_name(const std::string& weight) {
  constexpr std::string_view kWeight = "weight";
  CHECK(weight.ends_with(kWeight), "{} has no scales", weight);
  return weight.substr(0, weight.size() - kWeight.size()) + "scale";
}

tensor::TensorToWrite StoredPart::to_write() const {
  if (scales) return {scale_name(info.name), form.scale_dtype, tensor::scale_shape(info.shape, *form.format)};
  return {info.name, form.dtype, form.format ? tensor::code_shape(info.shape, *form.format) : info.shape};
}

std::vector<StoredPart> stored_parts(const model::Weights& weights,
                                     const std::function<Form(const TensorInfo&)>& form_of) {
  std::vector<StoredPart> parts;
  weights.visit_named([&](const TensorInfo& info, const tensor::Tensor&) {
    const Form form = form_of(info);
    parts.push_back({info, form, false});
    if (form.format) parts.push_back({info, form, true});
  });
  return parts;
}

void describe_forms(base::Json& config, const model::Profile& profile, bool real_scales) {
  const char* const dtype_key = config.contains("dtype") ? "dtype" : "torch_dtype";  // transformers' newer spelling
  config[dtype_key] = profile.round_bf16 ? "bfloat16" : "float32";
  config.erase("quantization_config");
  if (!profile.quantise) return;
  config["expert_dtype"] = profile.fp4_experts ? "fp4" : "fp8";
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"fmt", "e4m3"},
                                   {"activation_scheme", "dynamic"},
                                   {"scale_fmt", "ue8m0"},
                                   {"weight_block_size", {128, 128}}};
  if (real_scales) config["quantization_config"].erase("scale_fmt");
}

}  // namespace checkpoint
