// Lines are put together by hand where it matters: a JSON library would write an f32 with the seventeen digits of an
// f64.
#include "report/rollouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "data/json_fields.h"
#include "report/jsonl.h"

namespace report {
namespace fs = std::filesystem;
using base::Json;
namespace {
constexpr std::string_view kStepPrefix = "step_", kEvalPrefix = "eval_", kSuffix = ".jsonl", kTemporary = ".tmp";

void append_floats(std::string& line, const std::vector<float>& values) {
  line += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) line += ',';
    if (std::isfinite(values[i])) {
      fmt::format_to(std::back_inserter(line), "{}", values[i]);
    } else {
      line += std::isnan(values[i]) ? "\"nan\"" : values[i] > 0 ? "\"inf\"" : "\"-inf\"";
    }
  }
  line += ']';
}

// [5, 5, 5, 6] as [[5, 3], [6, 1]]: nearly always one policy version wrote all of an answer.
Json runs_of(const std::vector<int64_t>& values) {
  Json runs = Json::array();
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    runs.push_back(Json::array({values[i], end - i}));
    i = end;
  }
  return runs;
}

std::string line_of(int64_t step, const data::Problem& problem, const data::Sample& sample) {
  Json head{{"step", step},
            {"group_id", sample.group_id},
            {"index", sample.index},
            {"problem", problem.id},
            {"prompt", problem.prompt},
            {"label", problem.label},
            {"metadata", problem.metadata},
            {"response", sample.response}};
  head["reward"] = std::isfinite(sample.reward) ? Json(sample.reward) : Json();
  head["reward_note"] = sample.reward_note;
  head["finish"] = data::to_string(sample.finish);
  head["seed"] = sample.seed;
  head["versions"] = runs_of(sample.versions);
  head["response_ids"] = sample.response_ids;
  std::string line = base::to_line(head);
  line.pop_back();  // the closing brace
  line += ",\"log_probs\":";
  append_floats(line, sample.log_probs);
  line += "}\n";
  return line;
}

float float_from(const Json& json, const std::string& where) {
  if (json.is_number()) return static_cast<float>(json.get<double>());
  if (json == "nan") return std::numeric_limits<float>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<float>::infinity();
  if (json == "-inf") return -std::numeric_limits<float>::infinity();
  base::fail(base::Code::corruption, "{}: a log-prob is {} and should be a number", where,
             base::to_line(json).substr(0, 80));
}

std::vector<int64_t> values_of(const Json& runs, size_t total, const std::string& where) {
  std::vector<int64_t> values;
  for (const Json& run : runs) {
    const bool sound = run.is_array() && run.size() == 2 && run[0].is_number_integer() && run[1].is_number_unsigned();
    // The lengths must add up to the number of tokens, which bounds what is allocated.
    if (!sound || run[1].get<uint64_t>() > total - values.size()) {
      base::fail(base::Code::corruption, "{}: \"versions\" is not [version, count] pairs for {} tokens", where, total);
    }
    values.insert(values.end(), run[1].get<size_t>(), run[0].get<int64_t>());
  }
  return values;
}

data::FinishReason finish_from(const std::string& name, const std::string& where) {
  for (const auto reason : {data::FinishReason::stop, data::FinishReason::length, data::FinishReason::cancelled}) {
    if (data::to_string(reason) == name) return reason;
  }
  base::fail(base::Code::corruption, "{}: \"finish\" is \"{}\" and should be stop, length or cancelled", where, name);
}

data::Sample sample_from(const Json& line, const std::string& where) {
  data::Sample sample;
  sample.group_id = data::integer_member(line, "group_id", where);
  sample.index = data::integer_member(line, "index", where);
  sample.response = data::text_member(line, "response", where);
  const Json& reward = data::member(line, "reward", where);
  sample.reward = reward.is_number() ? reward.get<double>() : std::numeric_limits<double>::quiet_NaN();
  sample.reward_note = data::text_member(line, "reward_note", where);
  sample.finish = finish_from(data::text_member(line, "finish", where), where);
  const Json& seed = data::member(line, "seed", where);
  if (!seed.is_number_integer()) base::fail(base::Code::corruption, "{}: \"seed\" should be an integer", where);
  sample.seed = seed.get<uint64_t>();
  for (const Json& id : data::array_member(line, "response_ids", where)) {
    if (!id.is_number_integer()) base::fail(base::Code::corruption, "{}: a token id should be an integer", where);
    sample.response_ids.push_back(id.get<int32_t>());
  }
  sample.versions = values_of(data::array_member(line, "versions", where), sample.response_ids.size(), where);
  for (const Json& value : data::array_member(line, "log_probs", where))
    sample.log_probs.push_back(float_from(value, where));
  return sample;
}

data::Problem problem_from(const Json& line, const std::string& where) {
  data::Problem problem;
  problem.id = data::text_member(line, "problem", where);
  problem.prompt = data::text_member(line, "prompt", where);
  problem.label = data::text_member(line, "label", where);
  problem.metadata = data::member(line, "metadata", where);
  return problem;
}

std::string name_part(std::string_view set) {
  std::string result(set);
  for (char& c : result) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
    if (!plain || static_cast<unsigned char>(c) >= 0x80) c = '_';
  }
  return result;
}

std::optional<RolloutFile> parse_name(const fs::path& path) {
  std::string name = path.filename().string();
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.resize(name.size() - kSuffix.size());
  const size_t underscore = name.rfind('_');
  if (underscore == std::string::npos) return std::nullopt;
  const std::string digits = name.substr(underscore + 1);
  constexpr size_t kMaxDigits = 18;
  if (digits.empty() || digits.size() > kMaxDigits || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  RolloutFile file{path, std::strtoll(digits.c_str(), nullptr, 10), ""};
  const std::string head = name.substr(0, underscore + 1);
  if (head == kStepPrefix) return file;
  if (!head.starts_with(kEvalPrefix) || head.size() <= kEvalPrefix.size() + 1) return std::nullopt;
  file.set = head.substr(kEvalPrefix.size(), head.size() - kEvalPrefix.size() - 1);
  return file;
}

}  // namespace

fs::path rollout_path(const fs::path& folder, int64_t step, const std::string& set) {
  if (set.empty()) return folder / fmt::format("{}{:06}{}", kStepPrefix, step, kSuffix);
  return folder / fmt::format("{}{}_{:06}{}", kEvalPrefix, name_part(set), step, kSuffix);
}

void write_rollouts(const fs::path& path, int64_t step, std::span<const data::Group> groups) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  base::AtomicFile file(path);
  for (const data::Group& group : groups) {
    for (const data::Sample& sample : group.samples) file.write(line_of(step, group.problem, sample));
  }
  file.commit();
}

std::vector<data::Group> read_rollouts(const fs::path& path) {
  if (!fs::exists(path)) base::fail(base::Code::not_found, "{}: no such file of samples", path.string());
  std::vector<data::Group> groups;
  for_each_line(path, [&](const Json& line, const std::string& where) {
    data::Sample sample = sample_from(line, where);
    if (groups.empty() || groups.back().id != sample.group_id) {
      groups.push_back({sample.group_id, problem_from(line, where), {}});
    }
    groups.back().samples.push_back(std::move(sample));
  });
  return groups;
}

std::vector<RolloutFile> list_rollouts(const fs::path& folder) {
  std::vector<RolloutFile> files;
  if (!fs::is_directory(folder)) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (const auto file = parse_name(entry.path())) files.push_back(*file);
  }
  std::sort(files.begin(), files.end(), [](const RolloutFile& a, const RolloutFile& b) {
    return std::tie(a.set, a.step, a.path) < std::tie(b.set, b.step, b.path);
  });
  return files;
}

void drop_rollouts_after(const fs::path& folder, int64_t last_step) {
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> doomed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const auto file = parse_name(entry.path());
    if (entry.path().string().ends_with(kTemporary) || (file && file->step > last_step)) doomed.push_back(entry.path());
  }
  for (const fs::path& path : doomed) fs::remove(path);
  if (!doomed.empty()) base::sync_folder(folder);
}

}  // namespace report
