// What a checkpoint folder holds of a model: which stored tensor, or part of one, belongs to each native tensor. Found
// from config.json and the headers alone; reading a tensor's value comes after everything fits.
//
// Threads: after construction, const calls may come from any.
#pragma once
#include <filesystem>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "checkpoint/names.h"
#include "checkpoint/stored_form.h"
#include "model/weights.h"
#include "tensor/safetensors.h"

namespace checkpoint {

// How the files differ from what config.json asks for; every list is complete and sorted.
struct Differences {
  std::vector<std::string> missing;     // native names, with a remark where only the scales are there
  std::vector<std::string> unexpected;  // stored names that the model does not have
  std::vector<std::string> twice;       // native names that two stored tensors have
  std::vector<std::string> wrong;       // stored names, with what is wrong with shape, dtype or scales

  bool empty() const { return missing.empty() && unexpected.empty() && twice.empty() && wrong.empty(); }
};

class StoredWeights {
 public:
  // Opens the folder and translates its names. Errors: as SafetensorsFolder and model::Config::load.
  explicit StoredWeights(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const tensor::SafetensorsFolder& files() const { return files_; }
  // config.json, with what it leaves to the files: no MTP block where they hold none of it, and the dtype of the
  // compressors' norms where it does not say (decisions 17).
  const model::Config& config() const { return config_; }
  bool lacks_mtp() const { return lacks_mtp_; }  // config.json names an MTP block, the files have none

  Differences differences() const;
  // One Error{invalid_argument} with the differences, long lists cut short, if there are any.
  void check() const;

  // The rest is for the parameters of Weights::describe(config()), after check().
  Form form(const model::TensorInfo& info) const;
  std::string place(const model::TensorInfo& info) const;  // for messages: file, stored name, native name
  // f32 on the CPU (int64 for tid2eid), in the shape of info, own memory. Error{corruption}: a NaN or an infinity.
  tensor::Tensor read(const model::TensorInfo& info) const;
  // The same of rows [begin, begin + count) of a matrix ([count, C]), or elements of a vector. Codes are read by whole
  // rows of blocks: begin is a multiple of 128.
  tensor::Tensor read_rows(const model::TensorInfo& info, int64_t begin, int64_t count) const;
  // Of a form with codes: codes and scales of these rows as they are stored, not checked.
  tensor::Quantised read_codes(const model::TensorInfo& info, int64_t begin, int64_t count) const;

 private:
  struct Found {
    std::string value, scales;  // names in the files; empty when not there
    Part part = Part::value;
  };
  // Where the rows of a parameter begin.
  struct Place {
    const Found* found;
    int64_t first_row;
  };
  struct Search {
    Differences differences;
    std::unordered_set<std::string> used;  // native names and names of stacks
  };

  void add(const std::string& stored_name);
  void fit_config();
  const Found* find(const std::string& native) const;
  Place place_of(const model::TensorInfo& info) const;
  void check_one(const model::TensorInfo& info, Search& search) const;
  void check_stack(const model::TensorInfo& info, Search& search) const;
  std::string form_problem(const model::TensorInfo& info, const Found& found) const;

  std::filesystem::path folder_;
  model::Config config_;
  tensor::SafetensorsFolder files_;
  std::unordered_map<std::string, Found> found_;  // by native name; stacks by their name with {}
  std::vector<std::string> unexpected_, twice_;
  bool has_mtp_ = false, lacks_mtp_ = false;
};

}  // namespace checkpoint
