// Comparison of whole texts.
#include "rewards/text_match.h"

#include <fmt/format.h>

#include "rewards/answer_text.h"

namespace rewards {
namespace {

Score compare(std::string_view found, std::string_view label) {
  const bool same = strip(found) == strip(label) && !strip(label).empty();
  return {same ? 1.0 : 0.0,
          same ? fmt::format("equals \"{}\"", shown(strip(label)))
               : fmt::format("found \"{}\", expected \"{}\"", shown(strip(found)), shown(strip(label)))};
}

bool cut_off(const RewardSettings& settings, const data::Sample& sample) {
  return settings.require_stop && sample.finish != data::FinishReason::stop;
}

Score cut_off_score(const data::Sample& sample) {
  return {0, "the answer was cut off: " + data::to_string(sample.finish), Outcome::no_answer};
}

}  // namespace

Score exact(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample) {
  if (cut_off(settings, sample)) return cut_off_score(sample);
  return compare(sample.response, problem.label);
}

Score after_last(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample) {
  if (cut_off(settings, sample)) return cut_off_score(sample);
  const std::string_view response = sample.response;
  const size_t at = response.rfind(settings.separator);
  if (at == std::string_view::npos) {
    return {0, fmt::format("no \"{}\" in the answer", settings.separator), Outcome::no_answer};
  }
  return compare(response.substr(at + settings.separator.size()), problem.label);
}

}  // namespace rewards
