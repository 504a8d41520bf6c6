// Collects the groups of one step: asks problems in the order of the data, has the answers scored, and with dynamic
// sampling drops groups whose rewards are all equal (they teach nothing) and asks further problems in their place.
//
// A group's id is the number of its problem in the order of the data (epoch after epoch), so ids are unique in a run,
// and the seed of a sample follows from run seed, id and index: a step that is done again asks the same questions with
// the same noise. Groups are judged in the order of their ids, never in the order in which they finish, so what is kept
// does not depend on speed. Groups beyond the need stay for the next step while they are fresh enough; otherwise their
// problems are asked again. So each problem is trained on, dropped or asked again: none vanishes.
//
// Source of the rule: dynamic sampling of DAPO, arXiv 2503.14476, section 3.2.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "controller/generator.h"
#include "controller/settings.h"
#include "data/sample.h"
#include "rewards/worker_pool.h"

namespace controller {

// max == min, not a rounded standard deviation. True for one sample.
bool equal_rewards(const data::Group& group);

// The smallest policy version that wrote a token of the group; 0 for a group without tokens.
int64_t oldest_version(const data::Group& group);

// What one step collected.
struct Collected {
  std::vector<data::Group> groups;   // to train on, by id
  std::vector<data::Group> dropped;  // with equal rewards, by id
  int64_t num_rounds = 0;
  int64_t num_tokens = 0;  // generated in these rounds, surplus included
  rewards::ScoreTotals scores;
  double generate_s = 0, reward_s = 0;
};

// Where a collector stands: all that a redone step needs.
struct CollectorState {
  int64_t next_id = 0;               // the problem asked next
  std::vector<data::Group> surplus;  // scored, ids from next_id on, not yet used

  base::Json to_json() const;
  static CollectorState from_json(const base::Json& json, const std::string& where);
};

// The outside of a collector.
struct CollectorParts {
  // The problem with this number, counted over epochs; valid until the next call.
  std::function<const data::Problem&(int64_t id)> problem;
  Generator* generator = nullptr;
  bool record_experts = false;  // for routing replay
  // Fills rewards and notes of all samples. complete = false: stopped.
  std::function<rewards::ScoreTotals(std::span<data::Group> groups, const StopAsked& stop)> score;
  base::Clock clock;
};

// Used by one thread at a time.
class Collector {
 public:
  Collector(const RolloutSettings& settings, uint64_t run_seed, CollectorParts parts);

  // The groups of one step; `step` is the version that will be trained on them. Fewer than
  // settings.prompts_per_step, possibly none, after dynamic_sampling.max_rounds rounds; a warning says so. nullopt:
  // stop said true, and the state is that of before. progress: samples answered, samples asked, of the round.
  using Progress = std::function<void(int64_t answered, int64_t asked, int64_t num_tokens)>;
  std::optional<Collected> collect(int64_t step, const StopAsked& stop, const Progress& progress);

  const CollectorState& state() const { return state_; }
  void restore(CollectorState state) { state_ = std::move(state); }

 private:
  using Groups = std::map<int64_t, data::Group>;  // by id
  std::optional<Groups> answered(int64_t first_id, int64_t count, Groups& surplus, Collected& collected,
                                 const StopAsked& stop, const Progress& progress);
  void warn_if_short(int64_t step, const Collected& collected) const;

  RolloutSettings settings_;
  uint64_t seed_;
  CollectorParts parts_;
  CollectorState state_;
};

}  // namespace controller
