// Folders and samples for the tests of this folder.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/sample.h"

namespace report {

// An empty folder of the running test's own.
inline std::filesystem::path fresh_folder() {
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  const auto folder = std::filesystem::path(testing::TempDir()) /
                      (std::string("report_") + info->test_suite_name() + "_" + info->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

inline void append_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline data::Group group_of(int64_t id, const std::string& prompt, const std::vector<double>& rewards) {
  data::Group group;
  group.id = id;
  group.problem.id = "set.jsonl:" + std::to_string(id);
  group.problem.prompt = prompt;
  group.problem.label = "42";
  group.problem.metadata = base::Json{{"carries", 2}};
  for (size_t i = 0; i < rewards.size(); ++i) {
    data::Sample sample;
    sample.group_id = id;
    sample.index = static_cast<int64_t>(i);
    sample.seed = 18446744073709551615ULL - i;
    sample.response_ids = {5, 129279, 1};
    sample.log_probs = {-0.1F, -1.17549435e-38F, -12.345678F};
    sample.versions = {7, 7, 8};
    sample.response = "line one\n\"two\" \xE2\x88\x92 3";
    sample.reward = rewards[i];
    sample.reward_note = rewards[i] > 0 ? "equals \"42\"" : "expected \"42\"";
    sample.finish = i % 2 == 0 ? data::FinishReason::stop : data::FinishReason::length;
    group.samples.push_back(sample);
  }
  return group;
}

}  // namespace report
