// Reads test data of this folder.
#pragma once
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "data/sample.h"
#include "rewards/reward.h"

namespace rewards {

inline std::vector<base::Json> golden_lines(const std::string& name) {
  const std::string path = std::string(FURLONG_SOURCE_DIR) + "/tests/golden/rewards/" + name;
  std::ifstream file(path);
  if (!file) base::fail(base::Code::not_found, "{}", path);
  std::vector<base::Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(base::parse_json(line, path));
  return lines;
}

inline data::Problem problem_with(std::string label, std::string prompt = "What?") {
  data::Problem problem;
  problem.id = "set:1";
  problem.prompt = std::move(prompt);
  problem.label = std::move(label);
  return problem;
}

inline data::Sample answer(std::string response, data::FinishReason finish = data::FinishReason::stop) {
  data::Sample sample;
  sample.response = std::move(response);
  sample.finish = finish;
  return sample;
}

// The score of a pure reward.
inline Score score_of(const RewardSettings& settings, const data::Problem& problem, const data::Sample& sample) {
  return find_reward(settings.kind)->score(settings, problem, sample);
}

inline double value_of(const std::string& kind, const std::string& response, const std::string& label) {
  RewardSettings settings;
  settings.kind = kind;
  return score_of(settings, problem_with(label), answer(response)).value;
}

}  // namespace rewards
