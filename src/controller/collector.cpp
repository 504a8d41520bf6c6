// Rounds of asking and scoring, and which groups are kept, dropped or left over.
#include "controller/collector.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/rng.h"
#include "data/json_fields.h"

namespace controller {

bool equal_rewards(const data::Group& group) {
  const auto by_reward = [](const data::Sample& a, const data::Sample& b) { return a.reward < b.reward; };
  const auto [low, high] = std::minmax_element(group.samples.begin(), group.samples.end(), by_reward);
  return low == group.samples.end() || low->reward == high->reward;
}

int64_t oldest_version(const data::Group& group) {
  std::optional<int64_t> oldest;
  for (const data::Sample& sample : group.samples) {
    for (const int64_t version : sample.versions) oldest = std::min(oldest.value_or(version), version);
  }
  return oldest.value_or(0);
}

base::Json CollectorState::to_json() const {
  base::Json groups = base::Json::array();
  for (const data::Group& group : surplus) groups.push_back(data::to_json(group));
  return {{"next_id", next_id}, {"surplus", std::move(groups)}};
}

CollectorState CollectorState::from_json(const base::Json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("next_id") || !json["next_id"].is_number_integer() ||
      json["next_id"].get<int64_t>() < 0 || !json.contains("surplus") || !json["surplus"].is_array()) {
    base::fail(base::Code::corruption, "{}: a collector's state has next_id (0 or more) and a list surplus", where);
  }
  CollectorState state;
  state.next_id = json["next_id"].get<int64_t>();
  for (const base::Json& group : json["surplus"]) state.surplus.push_back(data::group_from_json(group, where));
  return state;
}

Collector::Collector(const RolloutSettings& settings, uint64_t run_seed, CollectorParts parts)
    : settings_(settings), seed_(base::derive_seed(run_seed, "rollout")), parts_(std::move(parts)) {}

// The groups with ids [first_id, first_id + count): from surplus where they are there, else asked and scored.
std::optional<Collector::Groups> Collector::answered(int64_t first_id, int64_t count, Groups& surplus,
                                                     Collected& collected, const StopAsked& stop,
                                                     const Progress& progress) {
  Groups groups;
  GenerateOrder order;
  std::vector<data::Problem> problems;
  std::vector<int64_t> ids;
  for (int64_t id = first_id; id < first_id + count; ++id) {
    if (const auto found = surplus.extract(id)) {
      groups.emplace(id, std::move(found.mapped()));
      continue;
    }
    ids.push_back(id);
    problems.push_back(parts_.problem(id));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    order.questions.push_back({&problems[i], ids[i], base::derive_seed(seed_, static_cast<uint64_t>(ids[i]))});
  }
  order.num_samples = settings_.samples_per_prompt;
  order.sampling = settings_.sampling;
  order.record_experts = parts_.record_experts;
  order.stop = stop;
  const auto asked = static_cast<int64_t>(ids.size()) * order.num_samples;
  order.progress = [&](int64_t answers, int64_t num_tokens) {
    progress(answers, asked, collected.num_tokens + num_tokens);
  };

  const double start_s = parts_.clock.now_s();
  std::optional<std::vector<data::Group>> fresh = parts_.generator->generate(order);
  const double generated_s = parts_.clock.now_s();
  if (!fresh) return std::nullopt;
  const rewards::ScoreTotals scores = parts_.score(*fresh, stop);
  if (!scores.complete) return std::nullopt;
  collected.generate_s += generated_s - start_s;
  collected.reward_s += parts_.clock.now_s() - generated_s;
  collected.scores.graded += scores.graded;
  collected.scores.no_answer += scores.no_answer;
  collected.scores.failed += scores.failed;
  for (data::Group& group : *fresh) {
    for (const data::Sample& sample : group.samples) {
      collected.num_tokens += static_cast<int64_t>(sample.response_ids.size());
    }
    const int64_t id = group.id;
    groups.emplace(id, std::move(group));
  }
  return groups;
}

std::optional<Collected> Collector::collect(int64_t step, const StopAsked& stop, const Progress& progress) {
  const DynamicSamplingSettings& dynamic = settings_.dynamic_sampling;
  const auto wanted = static_cast<size_t>(settings_.prompts_per_step);
  const int64_t per_round =
      dynamic.on ? std::max(dynamic.groups_per_round, settings_.prompts_per_step) : settings_.prompts_per_step;
  Collected collected;
  Groups surplus;
  for (const data::Group& group : state_.surplus) surplus.emplace(group.id, group);
  int64_t next_id = state_.next_id;

  for (; collected.num_rounds < dynamic.max_rounds && collected.groups.size() < wanted; ++collected.num_rounds) {
    std::optional<Groups> round = answered(next_id, per_round, surplus, collected, stop, progress);
    if (!round) return std::nullopt;
    for (auto& [id, group] : *round) {
      if (collected.groups.size() == wanted) {
        surplus.emplace(id, std::move(group));
        continue;
      }
      next_id = id + 1;
      const bool drop = dynamic.on && equal_rewards(group);
      (drop ? collected.dropped : collected.groups).push_back(std::move(group));
    }
  }

  state_.next_id = next_id;
  state_.surplus.clear();
  for (auto& [id, group] : surplus) {  // for the next step, if it may still train on them
    if (step + 1 - oldest_version(group) <= settings_.max_staleness) state_.surplus.push_back(std::move(group));
  }
  warn_if_short(step, collected);
  return collected;
}

void Collector::warn_if_short(int64_t step, const Collected& collected) const {
  const size_t kept = collected.groups.size();
  if (kept == static_cast<size_t>(settings_.prompts_per_step)) return;
  size_t solved = 0;
  double best = 0;
  for (const data::Group& group : collected.dropped) best = std::max(best, group.samples.front().reward);
  for (const data::Group& group : collected.dropped) solved += group.samples.front().reward >= best && best > 0;
  spdlog::warn(
      "step {}: dynamic sampling kept {} of {} groups after {} rounds ({} dropped: {} with only the best reward {}, {} "
      "with only a lower one); {}. If this goes on, the data are too easy or too hard for this policy",
      step, kept, settings_.prompts_per_step, collected.num_rounds, collected.dropped.size(), solved, best,
      collected.dropped.size() - solved,
      kept == 0 ? "nothing to learn from, the step changes no weights" : "the step goes on with those");
}

}  // namespace controller
