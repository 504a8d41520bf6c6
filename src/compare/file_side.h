// Log-probs that somebody else computed, as JSON lines: {"input_ids": [..], "log_probs": [null, ..], "temperature": 1}.
//
// One value per id, each a finite number (kept as f32) or null; the first is null. Every line names the temperature,
// and all the same one.
#pragma once
#include <filesystem>
#include <map>

#include "base/json.h"
#include "compare/side.h"

namespace compare {

struct LogProbRecord {
  Sequence sequence;
  LogProbs log_probs;
  double temperature = 1;
};

class FileSide : public Side {
 public:
  // Reads and checks all of it. Errors: those of data::read_json_lines; corruption and invalid_argument with file, line
  // and what to do.
  FileSide(std::string name, const std::filesystem::path& path);

  const std::string& name() const override { return name_; }
  double temperature() const { return temperature_; }
  std::vector<Sequence> sequences() const;  // of the file, in order
  // Finds sequences by their ids; lines with the same ids are taken one after the other. Errors: invalid_argument for
  // another temperature than the file's; not_found naming the sequence that the file lacks.
  std::vector<LogProbs> score(std::span<const Sequence> sequences, double temperature, const Watch& watch) override;

 private:
  std::string name_, path_;
  double temperature_ = 1;
  std::vector<LogProbRecord> records_;
  std::map<Ids, std::vector<size_t>> places_;
};

// One line. Errors as above.
LogProbRecord read_log_probs(const base::Json& row, const std::string& where);

}  // namespace compare
