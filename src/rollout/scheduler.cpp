// Continuous batching with forks.
#include "rollout/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace rollout {

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), slots_(static_cast<size_t>(limits.num_slots), -1), num_free_(limits.num_slots) {
  CHECK(limits.num_slots >= 1 && limits.prefill_chunk >= 1 && limits.max_batch_tokens >= limits.num_slots,
        "{} slots, chunks of {}, {} tokens in a pass", limits.num_slots, limits.prefill_chunk, limits.max_batch_tokens);
}

std::vector<int64_t> Scheduler::add(int64_t num_prompt, int64_t num_samples) {
  CHECK(num_prompt >= 1 && num_samples >= 1);
  Group& group = groups_[next_group_];
  group.shared = num_prompt;
  group.num_members = num_samples;
  for (int64_t i = 0; i < num_samples; ++i) {
    sequences_[next_sequence_] = {.group = next_group_, .length = num_prompt};
    group.waiting.push_back(next_sequence_++);
  }
  queue_.insert(next_group_++);
  return {group.waiting.begin(), group.waiting.end()};
}

bool Scheduler::parked(int64_t id, const Sequence& sequence) const {
  const Group& group = groups_.at(sequence.group);
  return group.leader == id && sequence.computed == group.shared;
}

int64_t Scheduler::target(int64_t id, const Sequence& sequence) const {
  const Group& group = groups_.at(sequence.group);
  return group.leader == id ? group.shared : sequence.length;
}

bool Scheduler::decodes(int64_t id, const Sequence& sequence) const {
  const Group& group = groups_.at(sequence.group);
  return group.leader != id && sequence.computed + 1 == sequence.length && sequence.length > group.shared;
}

void Scheduler::give_slot(int64_t sequence, int64_t computed) {
  const auto slot = std::find(slots_.begin(), slots_.end(), -1);
  CHECK(slot != slots_.end());
  *slot = sequence;
  --num_free_;
  sequences_.at(sequence).slot = slot - slots_.begin();
  sequences_.at(sequence).computed = computed;
}

void Scheduler::take_slot(int64_t sequence) {
  Sequence& s = sequences_.at(sequence);
  slots_[static_cast<size_t>(s.slot)] = -1;
  ++num_free_;
  s.slot = -1;
  s.computed = 0;
}

// The group needs a new leader, if anyone still waits.
void Scheduler::requeue(int64_t id) {
  Group& group = groups_.at(id);
  group.leader = -1;
  open_.erase(id);
  if (!group.waiting.empty()) queue_.insert(id);
}

void Scheduler::fork_waiting() {
  if (open_.empty()) return;
  const std::vector<int64_t> open(open_.begin(), open_.end());
  for (const int64_t id : open) {
    Group& group = groups_.at(id);
    const Sequence& leader = sequences_.at(group.leader);
    if (!parked(group.leader, leader)) continue;
    Fork fork{.from = leader.slot, .to = {}, .source = group.leader, .targets = {}, .num_tokens = group.shared};
    for (; num_free_ > 0 && !group.waiting.empty(); group.waiting.pop_front()) {
      give_slot(group.waiting.front(), group.shared);
      fork.to.push_back(sequences_.at(group.waiting.front()).slot);
      fork.targets.push_back(group.waiting.front());
    }
    if (!fork.to.empty()) plan_.forks.push_back(std::move(fork));
    if (group.waiting.empty() || limits_.num_slots == 1) requeue(id);
  }
}

void Scheduler::admit() {
  int64_t owed = 0;  // forks of the groups admitted before
  for (const int64_t id : open_) owed += static_cast<int64_t>(groups_.at(id).waiting.size());
  while (!queue_.empty() && num_free_ > owed) {
    const int64_t id = *queue_.begin();
    queue_.erase(queue_.begin());
    Group& group = groups_.at(id);
    const int64_t first = group.waiting.front();
    group.waiting.pop_front();
    give_slot(first, 0);
    if (group.waiting.empty()) continue;
    group.leader = first;
    open_.insert(id);
    owed += static_cast<int64_t>(group.waiting.size());
  }
}

const StepPlan& Scheduler::plan() {
  plan_.forks.clear();
  plan_.chunks.clear();
  prefill_.clear();
  fork_waiting();
  admit();
  int64_t budget = limits_.max_batch_tokens;
  for (const int64_t id : slots_) {
    if (id < 0) continue;
    const Sequence& s = sequences_.at(id);
    if (decodes(id, s)) {
      plan_.chunks.push_back({id, s.slot, s.computed, 1});
      --budget;
    } else if (!parked(id, s)) {
      prefill_.push_back(id);
    }
  }
  std::sort(prefill_.begin(), prefill_.end());
  for (const int64_t id : prefill_) {
    const Sequence& s = sequences_.at(id);
    const int64_t count = std::min({target(id, s) - s.computed, limits_.prefill_chunk, budget});
    if (count <= 0) break;
    plan_.chunks.push_back({id, s.slot, s.computed, count});
    budget -= count;
  }
  CHECK(!plan_.chunks.empty() || sequences_.empty(), "{} sequences and none can go on", sequences_.size());
  return plan_;
}

const std::vector<int64_t>& Scheduler::computed(const Chunk& chunk) {
  Sequence& s = sequences_.at(chunk.sequence);
  CHECK(s.slot == chunk.slot && s.computed == chunk.start, "sequence {} is at {} of slot {}", chunk.sequence,
        s.computed, s.slot);
  s.computed += chunk.count;
  drawing_.clear();
  if (s.computed == s.length) drawing_.push_back(chunk.sequence);
  if (!parked(chunk.sequence, s)) return drawing_;
  const Group& group = groups_.at(s.group);
  for (const int64_t member : group.waiting) {
    if (sequences_.at(member).length == group.shared) drawing_.push_back(member);
  }
  return drawing_;
}

void Scheduler::append(int64_t sequence) { ++sequences_.at(sequence).length; }

void Scheduler::finish(int64_t sequence) {
  const Sequence ended = sequences_.at(sequence);
  Group& group = groups_.at(ended.group);
  if (ended.slot < 0) {
    group.waiting.erase(std::find(group.waiting.begin(), group.waiting.end(), sequence));
    if (group.waiting.empty()) {
      requeue(ended.group);
      queue_.erase(ended.group);
    }
  } else if (group.leader == sequence) {  // what it has computed is the prompt's, so a waiting member can take it over
    const int64_t heir = group.waiting.front();
    group.waiting.pop_front();
    slots_[static_cast<size_t>(ended.slot)] = heir;
    sequences_.at(heir).slot = ended.slot;
    sequences_.at(heir).computed = ended.computed;
    group.leader = heir;
    if (group.waiting.empty()) requeue(ended.group);
  } else {
    take_slot(sequence);
  }
  sequences_.erase(sequence);
  if (--group.num_members == 0) groups_.erase(ended.group);
}

void Scheduler::retract(int64_t sequence) {
  take_slot(sequence);
  const int64_t id = sequences_.at(sequence).group;
  Group& group = groups_.at(id);
  group.waiting.insert(std::lower_bound(group.waiting.begin(), group.waiting.end(), sequence), sequence);
  requeue(id);
}

std::vector<int64_t> Scheduler::retract_all() {
  std::vector<int64_t> retracted;
  for (const int64_t id : std::vector<int64_t>(slots_)) {
    if (id < 0) continue;
    retract(id);
    retracted.push_back(id);
  }
  return retracted;
}

std::vector<int64_t> Scheduler::new_weights() {
  for (const int64_t id : std::vector<int64_t>(open_.begin(), open_.end())) requeue(id);  // nobody forks an older state
  std::vector<int64_t> going_on;
  for (const int64_t id : std::vector<int64_t>(slots_)) {
    if (id < 0) continue;
    if (decodes(id, sequences_.at(id))) {
      going_on.push_back(id);
    } else {
      retract(id);
    }
  }
  return going_on;
}

}  // namespace rollout
