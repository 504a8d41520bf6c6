// Weights -> a HuggingFace-style checkpoint folder in native names, which transformers, load_weights and engines read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "model/weights.h"
#include "tensor/safetensors.h"

namespace checkpoint {

enum class SaveAs {
  f32,        // every parameter as its master
  bf16,       // the published value: bf16, f32 where the published checkpoint stores f32 (decisions 4)
  published,  // FP4 + FP8 with E8M0 scales, as spec 6.2 and the config's expert_dtype say
};

inline constexpr int64_t kShardBytes = int64_t{5} << 30;

// What a folder of this model holds in this form: names, dtypes and shapes, scales right after their weights. Needs no
// allocated weights.
std::vector<tensor::TensorToWrite> stored_tensors(const model::Weights& weights, SaveAs as);

// Writes folder.tmp, then renames it: the folder is there whole or not at all; a folder.tmp left by an interrupted save
// is replaced. Errors: invalid_argument when the folder exists and is not empty; unavailable when the disk is full.
void save_weights(const std::filesystem::path& folder, const model::Weights& weights, SaveAs as,
                  int64_t max_shard_bytes = kShardBytes);

}  // namespace checkpoint
