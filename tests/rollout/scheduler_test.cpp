#include "rollout/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"

namespace rollout {
namespace {

// A cache that holds names of tokens instead of keys, and answers that end after a given number of tokens: enough to
// see that every sequence is computed over exactly its own tokens.
class Simulation {
 public:
  explicit Simulation(const SchedulerLimits& limits)
      : scheduler(limits), limits_(limits), slots_(static_cast<size_t>(limits.num_slots)) {}

  std::vector<int64_t> add(int64_t num_prompt, int64_t num_samples, int64_t num_new) {
    const std::vector<int64_t> ids = scheduler.add(num_prompt, num_samples);
    for (const int64_t id : ids) {
      std::vector<int64_t>& tokens = tokens_[id];
      for (int64_t i = 0; i < num_prompt; ++i) tokens.push_back(1000000 * ids[0] + i);
      left_[id] = num_new;
    }
    return ids;
  }

  void step() {
    const StepPlan plan = scheduler.plan();
    for (const Fork& fork : plan.forks) {
      for (const int64_t to : fork.to) slots_[static_cast<size_t>(to)] = slots_[static_cast<size_t>(fork.from)];
      num_forked += static_cast<int64_t>(fork.to.size());
    }
    std::set<int64_t> used;
    int64_t num_tokens = 0;
    std::vector<int64_t> drawn;
    for (const Chunk& chunk : plan.chunks) {
      ASSERT_TRUE(used.insert(chunk.slot).second) << "slot " << chunk.slot << " twice in a pass";
      ASSERT_GE(chunk.count, 1);
      ASSERT_LE(chunk.count, limits_.prefill_chunk);
      num_tokens += chunk.count;
      write(chunk);
      for (const int64_t id : scheduler.computed(chunk)) drawn.push_back(id);
    }
    ASSERT_LE(num_tokens, limits_.max_batch_tokens);
    num_computed += num_tokens;
    for (const int64_t id : drawn) draw(id);
    ++num_steps;
  }

  void run(int64_t max_steps = 100000) {
    for (int64_t i = 0; i < max_steps && scheduler.num_unfinished() > 0; ++i) {
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler.num_unfinished(), 0);
    EXPECT_EQ(scheduler.num_free_slots(), limits_.num_slots);
  }

  void cancel(int64_t id) {
    scheduler.finish(id);
    tokens_.erase(id);
  }
  bool unfinished(int64_t id) const { return tokens_.count(id) > 0; }
  size_t num_tokens(int64_t id) const { return tokens_.at(id).size(); }

  Scheduler scheduler;
  std::vector<int64_t> order;  // sequences by end
  int64_t num_forked = 0, num_computed = 0, num_steps = 0;

 private:
  void write(const Chunk& chunk) {
    std::vector<int64_t>& slot = slots_[static_cast<size_t>(chunk.slot)];
    const std::vector<int64_t>& tokens = tokens_.at(chunk.sequence);
    ASSERT_LE(chunk.start + chunk.count, static_cast<int64_t>(tokens.size()));
    if (chunk.start == 0) slot.clear();
    ASSERT_EQ(static_cast<int64_t>(slot.size()), chunk.start) << "sequence " << chunk.sequence;
    ASSERT_TRUE(std::equal(slot.begin(), slot.end(), tokens.begin())) << "slot holds another sequence's tokens";
    slot.insert(slot.end(), tokens.begin() + chunk.start, tokens.begin() + chunk.start + chunk.count);
  }
  void draw(int64_t id) {
    ASSERT_TRUE(unfinished(id)) << id;
    tokens_[id].push_back(-id * 1000000 - left_[id]);
    if (--left_[id] > 0) return scheduler.append(id);
    order.push_back(id);
    cancel(id);
  }

  SchedulerLimits limits_;
  std::vector<std::vector<int64_t>> slots_;
  std::map<int64_t, std::vector<int64_t>> tokens_;
  std::map<int64_t, int64_t> left_;
};

TEST(Scheduler, PrefillsInChunksThenDecodes) {
  Simulation s({.num_slots = 2, .max_batch_tokens = 8, .prefill_chunk = 4});
  s.add(10, 1, 3);
  s.step(), s.step(), s.step();  // 4 + 4 + 2, first token
  EXPECT_EQ(s.num_computed, 10);
  EXPECT_EQ(s.num_tokens(0), 11u);
  s.step(), s.step();
  EXPECT_FALSE(s.unfinished(0));
  EXPECT_EQ(s.num_computed, 12);  // the last token is never computed
}

TEST(Scheduler, DecodeComesBeforePrefillWithinTheBudget) {
  Simulation s({.num_slots = 4, .max_batch_tokens = 6, .prefill_chunk = 100});
  s.add(3, 1, 10);
  s.step();
  s.add(20, 1, 1);
  const StepPlan plan = s.scheduler.plan();
  ASSERT_EQ(plan.chunks.size(), 2u);
  EXPECT_EQ(plan.chunks[0].count, 1);
  EXPECT_EQ(plan.chunks[1].count, 5);
}

TEST(Scheduler, SamplesOfAPromptShareItsPrefill) {
  Simulation s({.num_slots = 8, .max_batch_tokens = 64, .prefill_chunk = 64});
  s.add(30, 8, 5);
  s.run();
  EXPECT_EQ(s.num_forked, 7);
  EXPECT_EQ(s.num_computed, 30 + 8 * 4);
}

TEST(Scheduler, SharesThePrefillAlsoWhenSlotsComeFreeOneByOne) {
  Simulation s({.num_slots = 3, .max_batch_tokens = 64, .prefill_chunk = 64});
  s.add(30, 8, 5);
  s.run();
  EXPECT_EQ(s.num_forked, 7);
  EXPECT_EQ(s.num_computed, 30 + 8 * 4);
}

TEST(Scheduler, OneSlotServesAGroupByPrefillingAgain) {
  Simulation s({.num_slots = 1, .max_batch_tokens = 64, .prefill_chunk = 64});
  s.add(30, 3, 5);
  s.run();
  EXPECT_EQ(s.num_forked, 0);
  EXPECT_EQ(s.order, (std::vector<int64_t>{0, 1, 2}));
}

TEST(Scheduler, AMemberThatEndsAtItsFirstTokenNeedsNoSlot) {
  Simulation s({.num_slots = 2, .max_batch_tokens = 64, .prefill_chunk = 64});
  s.add(30, 8, 1);
  s.step();
  EXPECT_EQ(s.scheduler.num_unfinished(), 0);
  EXPECT_EQ(s.scheduler.num_free_slots(), 2);
}

TEST(Scheduler, GroupsAreServedInOrderOfArrival) {
  Simulation s({.num_slots = 2, .max_batch_tokens = 16, .prefill_chunk = 8});
  std::vector<int64_t> first;
  for (int i = 0; i < 6; ++i) first.push_back(s.add(8, 1, 4)[0]);
  s.run();
  EXPECT_EQ(s.order, first);
}

TEST(Scheduler, ALaterGroupWaitsForTheForksOwedToAnEarlierOne) {
  Simulation s({.num_slots = 4, .max_batch_tokens = 64, .prefill_chunk = 4});
  s.add(16, 4, 2);  // takes all four slots once its prompt is computed
  s.add(4, 1, 1);
  s.step();
  EXPECT_EQ(s.scheduler.num_running(), 1);
  s.run();
  EXPECT_EQ(s.order.back(), 4);
  EXPECT_EQ(s.num_forked, 3);
}

TEST(Scheduler, CancelledSequencesFreeTheirSlots) {
  Simulation s({.num_slots = 2, .max_batch_tokens = 16, .prefill_chunk = 16});
  s.add(8, 2, 100);
  const int64_t later = s.add(8, 1, 2)[0];
  s.step(), s.step();
  EXPECT_EQ(s.scheduler.num_free_slots(), 0);
  s.cancel(0);
  s.step();
  EXPECT_EQ(s.num_tokens(later), 9u);
  s.cancel(1);
  s.run();
}

TEST(Scheduler, ACancelledLeaderLeavesItsStateToTheGroup) {
  Simulation s({.num_slots = 2, .max_batch_tokens = 16, .prefill_chunk = 4});
  s.add(8, 3, 2);
  s.step();     // half of the prompt
  s.cancel(0);  // leads
  s.run();
  EXPECT_EQ(s.num_computed, 8 + 2);
}

TEST(Scheduler, RetractedSequencesKeepTheirTokensAndTheirPlace) {
  Simulation s({.num_slots = 2, .max_batch_tokens = 16, .prefill_chunk = 16});
  s.add(8, 2, 6);
  s.add(8, 1, 1);
  s.step(), s.step(), s.step();
  EXPECT_EQ(s.num_tokens(0), 11u);
  EXPECT_EQ(s.scheduler.retract_all(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(s.scheduler.num_free_slots(), 2);
  EXPECT_EQ(s.num_tokens(0), 11u);
  const int64_t before = s.num_computed;
  s.run();
  EXPECT_EQ(s.order.back(), 2);
  EXPECT_EQ(s.num_computed - before, 8 + 2 * (3 + 2) + 8);  // the shared prompt once, then the answers
}

TEST(Scheduler, NewWeightsStopForksOfAnOlderState) {
  Simulation s({.num_slots = 2, .max_batch_tokens = 16, .prefill_chunk = 4});
  s.add(4, 3, 4);
  s.step();  // prompt computed, all three have a first token
  s.step();  // one fork; the third member has no slot, so the leader is parked
  EXPECT_EQ(s.num_forked, 1);
  const std::vector<int64_t> going_on = s.scheduler.new_weights();
  EXPECT_EQ(going_on, (std::vector<int64_t>{0, 1}));
  s.run();
  EXPECT_EQ(s.num_forked, 1);  // the third prefilled for itself
}

TEST(Scheduler, NewWeightsRestartAPrefillInProgress) {
  Simulation s({.num_slots = 2, .max_batch_tokens = 16, .prefill_chunk = 4});
  s.add(8, 1, 2);
  s.step();
  EXPECT_TRUE(s.scheduler.new_weights().empty());
  const StepPlan plan = s.scheduler.plan();
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].start, 0);
}

TEST(Scheduler, AnyMixOfRequestsCancelsAndUpdatesEnds) {
  base::Philox random(17);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random.next_below(bound)); };
  for (int round = 0; round < 300; ++round) {
    const int64_t num_slots = 1 + below(6);
    Simulation s({.num_slots = num_slots, .max_batch_tokens = num_slots + below(20), .prefill_chunk = 1 + below(9)});
    std::vector<int64_t> ids;
    for (int i = 0; i < 60; ++i) {
      if (below(3) == 0) {
        for (const int64_t id : s.add(1 + below(20), 1 + below(7), 1 + below(6))) ids.push_back(id);
      }
      if (below(6) == 0 && !ids.empty()) {
        const int64_t id = ids[static_cast<size_t>(below(ids.size()))];
        if (s.unfinished(id)) s.cancel(id);
      }
      if (below(12) == 0) s.scheduler.retract_all();
      if (below(12) == 0) s.scheduler.new_weights();
      s.step();
      ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    }
    s.run();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace rollout
