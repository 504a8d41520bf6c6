// Samples as JSON. Numbers keep every bit: integers as integers, f32 as the f64 of equal value, which JSON texts carry
// exactly (shortest text that reads back as the same f64); NaN and infinities, which JSON lacks, as the texts "nan",
// "inf", "-inf".
#include "data/sample.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "data/json_fields.h"

namespace data {
namespace {

using base::Code;
using base::Json;

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double number_from(const Json& json, const std::string& where) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json.is_number()) return json.get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf" || json == "-inf") return json == "inf" ? kInfinity : -kInfinity;
  base::fail(Code::corruption, "{}: is {} and should be a number", where, base::to_line(json).substr(0, 80));
}

template <class T>
std::vector<T> integers_from(const Json& json, std::string_view key, const std::string& where) {
  std::vector<T> values;
  for (const Json& value : array_member(json, key, where)) {
    const bool fits =
        value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX) &&
        value.get<int64_t>() >= std::numeric_limits<T>::min() && value.get<int64_t>() <= std::numeric_limits<T>::max();
    if (!fits) {
      base::fail(Code::corruption, "{}: \"{}\"[{}] is {} and should be an integer of {} bits", where, key,
                 values.size(), base::to_line(value).substr(0, 80), 8 * sizeof(T));
    }
    values.push_back(static_cast<T>(value.get<int64_t>()));
  }
  return values;
}

Json to_json(const Problem& problem) {
  return {{"id", problem.id},
          {"prompt", problem.prompt},
          {"label", problem.label},
          {"metadata", problem.metadata},
          {"prompt_ids", problem.prompt_ids}};
}

Problem problem_from_json(const Json& json, const std::string& where) {
  return {text_member(json, "id", where), text_member(json, "prompt", where), text_member(json, "label", where),
          member(json, "metadata", where), integers_from<int32_t>(json, "prompt_ids", where)};
}

Json to_json(const Sample& sample) {
  Json log_probs = Json::array();
  for (const float value : sample.log_probs) log_probs.push_back(number(static_cast<double>(value)));
  Json json = {{"group_id", sample.group_id},
               {"index", sample.index},
               {"seed", sample.seed},
               {"response_ids", sample.response_ids},
               {"log_probs", std::move(log_probs)},
               {"versions", sample.versions},
               {"response", sample.response},
               {"finish", to_string(sample.finish)},
               {"reward", number(sample.reward)},
               {"reward_note", sample.reward_note}};
  if (!sample.experts.empty()) json["experts"] = sample.experts;
  return json;
}

Sample sample_from_json(const Json& json, const std::string& where) {
  Sample sample;
  sample.group_id = integer_member(json, "group_id", where);
  sample.index = integer_member(json, "index", where);
  const Json& seed = member(json, "seed", where);
  if (!seed.is_number_unsigned())
    base::fail(Code::corruption, "{}: \"seed\" should be an integer of 64 bits, not negative", where);
  sample.seed = seed.get<uint64_t>();
  sample.response_ids = integers_from<int32_t>(json, "response_ids", where);
  for (const Json& value : array_member(json, "log_probs", where)) {
    sample.log_probs.push_back(static_cast<float>(number_from(value, where + ", log_probs")));
  }
  sample.versions = integers_from<int64_t>(json, "versions", where);
  if (json.contains("experts")) sample.experts = integers_from<uint16_t>(json, "experts", where);
  sample.response = text_member(json, "response", where);
  sample.finish = finish_reason_from(text_member(json, "finish", where), where);
  sample.reward = number_from(member(json, "reward", where), where + ", reward");
  sample.reward_note = text_member(json, "reward_note", where);
  check_lengths(sample, where);
  return sample;
}

}  // namespace

std::string to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  base::fail(Code::internal, "finish reason {}", static_cast<int>(reason));
}

FinishReason finish_reason_from(std::string_view text, const std::string& where) {
  for (const FinishReason reason : {FinishReason::stop, FinishReason::length, FinishReason::cancelled}) {
    if (to_string(reason) == text) return reason;
  }
  base::fail(Code::corruption, "{}: the finish reason is \"{}\" and should be stop, length or cancelled", where, text);
}

void check_lengths(const Sample& sample, const std::string& where) {
  if (sample.log_probs.size() == sample.response_ids.size() && sample.versions.size() == sample.response_ids.size())
    return;
  base::fail(Code::corruption, "{}: a sample of {} tokens has {} log-probs and {} versions; all should be equal", where,
             sample.response_ids.size(), sample.log_probs.size(), sample.versions.size());
}

Json to_json(const Group& group) {
  Json samples = Json::array();
  for (const Sample& sample : group.samples) samples.push_back(to_json(sample));
  return {{"id", group.id}, {"problem", to_json(group.problem)}, {"samples", std::move(samples)}};
}

Group group_from_json(const Json& json, const std::string& where) {
  Group group;
  group.id = integer_member(json, "id", where);
  group.problem = problem_from_json(member(json, "problem", where), where + ", problem");
  const Json& samples = array_member(json, "samples", where);
  for (size_t i = 0; i < samples.size(); ++i) {
    group.samples.push_back(sample_from_json(samples[i], fmt::format("{}, sample {}", where, i)));
  }
  return group;
}

}  // namespace data
