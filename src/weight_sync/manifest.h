// What a weight update will hold, said before any of it is sent: each tensor's name, shape, encoding, size and
// checksum. The encoding travels with the data: a receiver converts from what arrived, never from what it guesses.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/weights.h"
#include "tensor/tensor.h"

namespace weight_sync {

using tensor::Tensor;

// How the bytes of a tensor encode its values: row-major, little-endian.
enum class Encoding { f32, bf16, i64 };

std::string to_string(Encoding encoding);  // "F32", "BF16", "I64" as in safetensors
at::ScalarType scalar_type(Encoding encoding);

struct TensorSpec {
  std::string name;  // native name; experts one by one
  std::vector<int64_t> shape;
  Encoding encoding = Encoding::bf16;

  int64_t size_bytes() const;
  bool operator==(const TensorSpec&) const = default;
};

struct ManifestEntry {
  TensorSpec spec;
  uint64_t checksum = 0;  // tensor::checksum64 of the bytes

  bool operator==(const ManifestEntry&) const = default;
};

struct Manifest {
  std::vector<ManifestEntry> tensors;

  int64_t size_bytes() const;
  bool operator==(const Manifest&) const = default;

  // {"tensors": [{"name", "shape", "encoding", "bytes", "checksum": 16 hex digits}, ...]}
  base::Json to_json() const;
  // Errors: corruption naming `where`, the tensor and the field. Sizes are checked against shapes, names against
  // repetition.
  static Manifest from_json(const base::Json& json, const std::string& where);
};

// In which form parameters are sent. published: bf16, or f32 where the checkpoint stores f32 (decisions 4). master: f32
// throughout, for an engine that runs profile f32 (decisions 20). tid2eid is i64 in both.
enum class PublishAs { published, master };

// The form that an engine of this profile expects.
PublishAs publish_as(const model::Profile& profile);

// The tensors that a whole update of this model holds, in the order of model::Weights::visit_named. Needs no allocated
// weights.
std::vector<TensorSpec> expected_tensors(const model::Weights& weights, PublishAs as);

}  // namespace weight_sync
