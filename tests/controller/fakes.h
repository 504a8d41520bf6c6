// A rollout engine and a data set that tests make up.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/collector.h"
#include "controller/generator.h"

namespace controller {

// Answers at once, with one token per sample, and remembers what it was asked.
class FakeGenerator : public Generator {
 public:
  std::optional<std::vector<data::Group>> generate(const GenerateOrder& order) override {
    if (order.stop()) return std::nullopt;
    samplings.push_back(order.sampling);
    std::vector<data::Group> groups;
    for (const Question& question : order.questions) {
      asked.push_back(question.group_id);
      data::Group group;
      group.id = question.group_id;
      group.problem = *question.problem;
      const std::vector<uint64_t> seeds = rollout::group_seeds(question.seed, order.num_samples);
      for (int64_t i = 0; i < order.num_samples; ++i) {
        data::Sample sample;
        sample.group_id = group.id;
        sample.index = i;
        sample.seed = seeds[static_cast<size_t>(i)];
        sample.response_ids = {1};
        sample.log_probs = {-0.5f};
        sample.versions = {serving};
        group.samples.push_back(sample);
      }
      groups.push_back(std::move(group));
    }
    return groups;
  }
  int64_t version() const override { return serving; }

  std::vector<int64_t> asked;                      // group ids in order
  std::vector<rollout::SamplingParams> samplings;  // of each order
  std::atomic<int64_t> serving = 0;
};

using RewardOf = std::function<double(int64_t group_id, int64_t index)>;

inline CollectorParts fake_parts(FakeGenerator& generator, RewardOf reward) {
  CollectorParts parts;
  parts.generator = &generator;
  parts.problem = [problem = std::make_shared<data::Problem>()](int64_t id) -> const data::Problem& {
    problem->id = "rows:" + std::to_string(id);
    problem->prompt_ids = {0};
    return *problem;
  };
  parts.score = [reward = std::move(reward)](std::span<data::Group> groups, const StopAsked& stop) {
    rewards::ScoreTotals totals;
    totals.complete = !stop();
    for (data::Group& group : groups) {
      for (data::Sample& sample : group.samples) sample.reward = reward(group.id, sample.index);
      totals.graded += static_cast<int64_t>(group.samples.size());
    }
    return totals;
  };
  return parts;
}

inline bool never() { return false; }
inline void no_progress(int64_t, int64_t, int64_t) {}

}  // namespace controller
