// What a checkpoint folder holds of a model: which stored tensor, or part of one, belongs to each native tensor. Found
// from the headers alone; reading a tensor's value comes after everything fits.
#pragma once
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/names.h"
#include "model/weights.h"
#include "tensor/safetensors.h"

namespace checkpoint {

class StoredWeights {
 public:
  // Opens the folder and translates its names. Errors: as SafetensorsFolder.
  explicit StoredWeights(const std::filesystem::path& folder);

  bool has_mtp() const { return has_mtp_; }
  bool has_f32_compressor_norms() const;

  // Compares the folder with what the config asks for: one Error{invalid_argument} with everything that does not fit.
  void check(const model::Weights& described) const;

  // f32 on the CPU (int64 for tid2eid), in the shape of info; for a tensor that check() has accepted.
  tensor::Tensor read(const model::TensorInfo& info);

 private:
  struct Found {
    std::string value, scales;  // names in the files; empty when not there
    Part part = Part::value;
  };
  struct Problems;

  void add(const std::string& stored_name);
  const Found* find(const std::string& native) const;
  void check_one(const model::TensorInfo& info, Problems& problems) const;
  std::string form_problem(const model::TensorInfo& info, const Found& found) const;
  tensor::Tensor read_stack(const std::string& stored_name);
  tensor::Tensor read_part(const model::TensorInfo& info, const Found& found);
  tensor::Tensor read_whole(const Found& found) const;

  std::filesystem::path folder_;
  tensor::SafetensorsFolder files_;
  std::unordered_map<std::string, Found> found_;  // by native name; stacks by their name with {}
  std::vector<std::string> unexpected_, twice_;
  bool has_mtp_ = false;
  std::string last_stack_name_;  // experts are read one by one from a stack that is read once
  tensor::Tensor last_stack_;
};

}  // namespace checkpoint
