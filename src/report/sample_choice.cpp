// Reads at most three files, however long the run was.
#include "report/sample_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "report/rollouts.h"

namespace report {
namespace {

struct Answers {
  const data::Problem* problem = nullptr;
  std::vector<const data::Sample*> samples;
  double mean() const {
    double sum = 0;
    for (const data::Sample* sample : samples) sum += sample->reward;
    return sum / static_cast<double>(samples.size());
  }
};

// By problem; the same problem may stand in several groups. Prompt and label are part of the key, because ids are only
// as unique as a data file makes them.
using ByProblem = std::map<std::tuple<std::string, std::string, std::string>, Answers>;

ByProblem by_problem(const std::vector<data::Group>& groups) {
  ByProblem result;
  for (const data::Group& group : groups) {
    Answers& answers = result[{group.problem.id, group.problem.prompt, group.problem.label}];
    answers.problem = &group.problem;
    for (const data::Sample& sample : group.samples) {
      if (std::isfinite(sample.reward)) answers.samples.push_back(&sample);
    }
  }
  std::erase_if(result, [](const auto& entry) { return entry.second.samples.empty(); });
  return result;
}

ShownSample shown(int64_t step, const data::Problem& problem, const data::Sample& sample) {
  return {step, problem.id, problem.prompt, problem.label, sample};
}

// The sample whose reward is nearest to the mean; the first of several.
const data::Sample& typical(const Answers& answers) {
  const double mean = answers.mean();
  return **std::min_element(answers.samples.begin(), answers.samples.end(), [&](const auto* a, const auto* b) {
    return std::abs(a->reward - mean) < std::abs(b->reward - mean);
  });
}

// One sample per problem, so that three of the same say nothing three times.
void choose_extremes(const RolloutFile& file, const std::vector<data::Group>& groups, size_t count,
                     SampleChoice& choice) {
  struct Candidate {
    const data::Group* group;
    const data::Sample* sample;
  };
  std::vector<Candidate> all;
  for (const data::Group& group : groups) {
    for (const data::Sample& sample : group.samples) {
      if (std::isfinite(sample.reward)) all.push_back({&group, &sample});
    }
  }
  const auto take = [&](auto better, std::vector<ShownSample>& to) {
    std::stable_sort(all.begin(), all.end(),
                     [&](const Candidate& a, const Candidate& b) { return better(a.sample, b.sample); });
    std::set<std::string> seen;
    for (const Candidate& one : all) {
      if (to.size() == count) return;
      if (seen.insert(one.group->problem.prompt).second)
        to.push_back(shown(file.step, one.group->problem, *one.sample));
    }
  };
  take([](const auto* a, const auto* b) { return a->reward > b->reward; }, choice.best);
  if (choice.best.empty()) return;
  take([](const auto* a, const auto* b) { return a->reward < b->reward; }, choice.worst);
  const double best = choice.best[0].sample.reward;
  std::erase_if(choice.worst, [&](const ShownSample& one) { return one.sample.reward >= best; });
}

void choose_changes(const RolloutFile& early, const RolloutFile& late, size_t count, SampleChoice& choice) {
  const std::vector<data::Group> groups_before = read_rollouts(early.path), groups_after = read_rollouts(late.path);
  const ByProblem before = by_problem(groups_before), after = by_problem(groups_after);
  for (const auto& [key, then] : before) {
    const auto found = after.find(key);
    if (found == after.end()) continue;
    const Answers& now = found->second;
    if (then.mean() == now.mean()) continue;
    choice.changed.push_back({then.problem->id, then.problem->prompt, then.problem->label, then.mean(), now.mean(),
                              shown(early.step, *then.problem, typical(then)),
                              shown(late.step, *now.problem, typical(now))});
  }
  std::stable_sort(choice.changed.begin(), choice.changed.end(), [](const Change& a, const Change& b) {
    return std::abs(a.mean_after - a.mean_before) > std::abs(b.mean_after - b.mean_before);
  });
  if (choice.changed.size() > count) choice.changed.resize(count);
  choice.change_source = early.set.empty()
                             ? fmt::format("training steps {} and {}", early.step, late.step)
                             : fmt::format("evaluations of {} after steps {} and {}", early.set, early.step, late.step);
}

}  // namespace

SampleChoice choose_samples(const std::filesystem::path& folder, size_t count) {
  SampleChoice choice;
  const std::vector<RolloutFile> files = list_rollouts(folder);
  std::map<std::string, std::vector<RolloutFile>> by_set;
  for (const RolloutFile& file : files) by_set[file.set].push_back(file);
  if (by_set.empty()) return choice;

  const auto training = by_set.find("");
  const RolloutFile& latest = training != by_set.end() ? training->second.back() : by_set.begin()->second.back();
  choice.source = latest.set.empty() ? fmt::format("training step {}", latest.step)
                                     : fmt::format("evaluation of {} after step {}", latest.set, latest.step);
  choose_extremes(latest, read_rollouts(latest.path), count, choice);

  const std::vector<RolloutFile>* compared = nullptr;
  for (const auto& [set, list] : by_set) {
    if (list.size() < 2) continue;
    if (compared == nullptr || (compared->front().set.empty() && !set.empty())) compared = &list;
  }
  if (compared != nullptr) choose_changes(compared->front(), compared->back(), count, choice);
  return choice;
}

}  // namespace report
