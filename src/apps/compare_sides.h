// The two sides of `furlong compare`, opened from how they are spelled.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/model_folder.h"
#include "compare/file_side.h"
#include "compare/side_name.h"

namespace apps {

struct PassSizes {
  int64_t batch_tokens = 8192, num_slots = 8, prefill_chunk = 512;
  double request_timeout_s = 300;
};

// Models are loaded once, also when both sides name one folder.
class CompareSides {
 public:
  // tokenizer: as in open_model. Errors: those of parse_side, open_model and FileSide.
  CompareSides(const std::string& a, const std::string& b, const std::string& tokenizer);

  const data::Tokenizer* tokenizer() const;  // of the first model that has one, or the one given; nullptr: none
  // The file of log-probs, the first one where both sides are one; nullptr where none is.
  const compare::FileSide* file() const;
  // Error{invalid_argument} naming the first sequence that a model of a side cannot take, and why.
  void check(const std::vector<compare::Sequence>& sequences) const;
  // The sides, for these sequences. Once.
  std::array<std::unique_ptr<compare::Side>, 2> open(const std::vector<compare::Sequence>& sequences,
                                                     const PassSizes& sizes);

 private:
  std::unique_ptr<compare::Side> open_one(size_t side, int64_t longest, const PassSizes& sizes);
  const ModelFolder& model_of(const compare::SideName& name) const { return *models_.at(name.place); }

  std::array<compare::SideName, 2> names_;
  std::map<std::string, std::unique_ptr<ModelFolder>> models_;  // by place; they outlive the sides
  std::optional<data::Tokenizer> tokenizer_;                    // where no side has a model
  std::array<std::unique_ptr<compare::FileSide>, 2> files_;
};

}  // namespace apps
