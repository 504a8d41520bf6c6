// Checks of every line, and finding lines by their ids.
#include "compare/file_side.h"

#include <cmath>

#include "base/error.h"
#include "compare/token_file.h"
#include "data/json_fields.h"
#include "data/jsonl.h"

namespace compare {
namespace {

using base::Code;

std::optional<float> read_value(const base::Json& json, size_t index, const std::string& where) {
  if (json.is_null()) return std::nullopt;
  const float value = json.is_number() ? json.get<float>() : NAN;
  if (!std::isfinite(value)) {
    base::fail(
        Code::corruption,
        "{}: log_probs[{}] is {}; it should be a finite number, or null where there is none (an impossible token: "
        "-9999)",
        where, index, base::to_line(json).substr(0, 80));
  }
  if (value > 1e-3f) {
    base::fail(Code::corruption, "{}: log_probs[{}] is {}; the log of a probability is not above 0", where, index,
               value);
  }
  return value;
}

}  // namespace

LogProbRecord read_log_probs(const base::Json& row, const std::string& where) {
  LogProbRecord record;
  record.sequence = {read_ids(data::member(row, "input_ids", where), where), where};
  record.temperature = data::number_member(row, "temperature", where);
  if (!(record.temperature > 0) || !std::isfinite(record.temperature)) {
    base::fail(
        Code::corruption,
        "{}: temperature {}: should be the number above 0 that the logits were divided by (1 for greedy answers)",
        where, record.temperature);
  }
  const base::Json& values = data::array_member(row, "log_probs", where);
  const size_t tokens = record.sequence.ids.size();
  if (values.size() != tokens) {
    base::fail(Code::corruption,
               "{}: {} log_probs for {} input_ids; there should be one for each id, null for the first{}", where,
               values.size(), tokens,
               values.size() + 1 == tokens ? " (put a null before the values that are there)" : "");
  }
  if (!values[0].is_null()) {
    base::fail(Code::corruption,
               "{}: log_probs[0] is {} and should be null: nothing stands before the first token. If the values are "
               "shifted by one, log_probs[t] belongs to input_ids[t]",
               where, base::to_line(values[0]).substr(0, 80));
  }
  for (const base::Json& value : values) {
    record.log_probs.push_back(read_value(value, record.log_probs.size(), where));
  }
  return record;
}

FileSide::FileSide(std::string name, const std::filesystem::path& path) : name_(std::move(name)), path_(path.string()) {
  int64_t tokens = 0;
  data::read_json_lines(path, [&](const base::Json& row, const std::string& where) {
    LogProbRecord record = read_log_probs(row, where);
    if (records_.empty()) temperature_ = record.temperature;
    if (record.temperature != temperature_) {
      base::fail(Code::invalid_argument,
                 "{}: temperature {}, the lines before have {}; compare one temperature at a time", where,
                 record.temperature, temperature_);
    }
    tokens += static_cast<int64_t>(record.sequence.ids.size());
    if (tokens > kMaxTokens) {
      base::fail(Code::invalid_argument, "{}: more than {} tokens up to here; compare a part of the file", where,
                 kMaxTokens);
    }
    places_[record.sequence.ids].push_back(records_.size());
    records_.push_back(std::move(record));
    return true;
  });
  if (records_.empty()) base::fail(Code::invalid_argument, "{}: has no lines: there is nothing to compare", path_);
}

std::vector<Sequence> FileSide::sequences() const {
  std::vector<Sequence> sequences;
  for (const LogProbRecord& record : records_) sequences.push_back(record.sequence);
  return sequences;
}

std::vector<LogProbs> FileSide::score(std::span<const Sequence> sequences, double temperature, const Watch&) {
  if (temperature != temperature_) {
    base::fail(Code::invalid_argument,
               "{}: its log-probs are at temperature {}, the comparison is at {}; use --temperature={}", path_,
               temperature_, temperature, temperature_);
  }
  std::vector<LogProbs> scores;
  std::map<Ids, size_t> used;
  for (const Sequence& sequence : sequences) {
    const auto at = places_.find(sequence.ids);
    if (at == places_.end()) {
      base::fail(Code::not_found, "{}: has no line with the {} tokens of {}; leave --tokens out to compare what it has",
                 path_, sequence.ids.size(), sequence.where);
    }
    const size_t next = used[sequence.ids]++;
    scores.push_back(records_[at->second[next % at->second.size()]].log_probs);
  }
  return scores;
}

}  // namespace compare
