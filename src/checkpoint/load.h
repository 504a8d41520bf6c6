// A HuggingFace-style checkpoint folder -> weights. Reads config.json and one or many safetensors in any dialect of
// names.h; dtypes F32, BF16, F16, and the published FP4 + FP8 layout (spec 6.2; scales as .scale or .weight_scale_inv,
// E8M0 or F32), dequantised exactly.
#pragma once
#include <filesystem>

#include "model/weights.h"

namespace checkpoint {

// f32 masters (tid2eid int64) on the device. A checkpoint without MTP tensors gives weights without MTP, in the config
// too. Before memory is allocated, every tensor's name, shape and dtype has been compared with the config. Errors:
// not_found (file); corruption and invalid_argument with one list of all that is missing, unexpected or of another
// form; a tensor with a NaN or an infinity, and a tid2eid row with an expert twice or out of range, by name.
model::Weights load_weights(const std::filesystem::path& folder, tensor::Device device = at::kCPU);

}  // namespace checkpoint
