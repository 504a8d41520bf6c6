// How the parameters of a model stand in files: as plain numbers, or as codes with one scale for each block, each
// with a name. Saver, converter and reader share these rules; what is read may have other forms (checkpoint/load.h).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/profile.h"
#include "model/weights.h"
#include "tensor/formats/block_scale.h"
#include "tensor/safetensors.h"

namespace checkpoint {

struct Form {
  at::ScalarType dtype = at::kFloat;                 // of the values, or of the codes
  std::optional<tensor::BlockFormat> format;         // of codes; nothing: plain values
  at::ScalarType scale_dtype = at::kFloat8_e8m0fnu;  // of codes: that, or f32

  bool operator==(const Form&) const = default;
};

// The form in which a profile stores a parameter: f32 everything as its master, bf16 the published value, fp8 and
// fp8_fp4 the published layouts of spec 6.2.
Form form_in(const model::TensorInfo& info, const model::Profile& profile);

// "layers.0.attn.wq_a.weight" -> "layers.0.attn.wq_a.scale".
std::string scale_name(const std::string& weight);

// One tensor of a file: the values or codes of a parameter, or the scales of its codes.
struct StoredPart {
  model::TensorInfo info;
  Form form;
  bool scales = false;

  tensor::TensorToWrite to_write() const;  // under its native name
};
// All of a model in the order of its layers, experts one by one, scales right after their codes. Needs no allocated
// weights.
std::vector<StoredPart> stored_parts(const model::Weights& weights,
                                     const std::function<Form(const model::TensorInfo&)>& form_of);

// Sets what config.json says about forms: dtype, quantization_config, and for a quantising profile expert_dtype.
// real_scales: some scales are f32.
void describe_forms(base::Json& config, const model::Profile& profile, bool real_scales = false);

}  // namespace checkpoint
