// Decides what the next forward pass computes: which sequences own a slot of the cache, how far each is computed, who
// shares whose prefill. Pure bookkeeping over counts of tokens: no tensors, no clock. Used by one thread.
//
// A sequence has `length` known tokens (prompt and answer so far) of which `computed` stand in its slot; a pass
// computes the next ones, and a sequence that is computed to its end draws a token. So prefill, decode and prefill
// after a retraction are one thing.
//
// Groups: the samples of one prompt. One member (the leader) prefills the prompt, the others wait; at the prompt's end
// its state is forked to them. Admission never deadlocks and keeps no slot aside: a group is admitted when, after the
// forks still owed to groups admitted before, a slot is free. At most the last admitted group can lack slots for its
// forks: its leader then stands still at the prompt's end (parked) until slots come free, since every other slot's
// sequence runs and ends. With one slot in all nobody else runs, and the rest of the group prefills again, one after
// the other.
//
// A fork happens only inside a group and only from a state that one version of the weights wrote (see new_weights).
// Order: groups by arrival; a retracted sequence keeps its place.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

namespace rollout {

struct SchedulerLimits {
  int64_t num_slots = 1;
  int64_t max_batch_tokens = 1;  // of one pass; at least num_slots, so that all running sequences can decode
  int64_t prefill_chunk = 1;     // tokens of one sequence in one pass
};

// State of slot `from` to be copied to the others before the pass.
struct Fork {
  int64_t from = 0;
  std::vector<int64_t> to;
  int64_t source = 0;            // sequence that owns `from`
  std::vector<int64_t> targets;  // sequences that own `to`
  int64_t num_tokens = 0;        // that the state covers
};

// Tokens [start, start + count) of a sequence, to be computed in its slot.
struct Chunk {
  int64_t sequence = 0, slot = 0, start = 0, count = 0;
};

struct StepPlan {
  std::vector<Fork> forks;
  std::vector<Chunk> chunks;  // decode steps by slot, then prefill by arrival
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // A new group; ids of its sequences, rising over all calls. num_prompt >= 1, num_samples >= 1.
  std::vector<int64_t> add(int64_t num_prompt, int64_t num_samples);

  // The next pass; no chunks when nothing is unfinished. Forks and slots are in force from here on: the pass must be
  // run. Valid until the next call.
  const StepPlan& plan();

  // The chunk has been computed. Returns the sequences that draw their next token from its last row: its own if it is
  // computed to its end, and the members that wait for a fork at the prompt's end and have no token yet. Valid until
  // the next call.
  const std::vector<int64_t>& computed(const Chunk& chunk);
  void append(int64_t sequence);  // it drew a token

  // Ended or cancelled: forgotten, its slot free (or handed to a member that waits for its state).
  void finish(int64_t sequence);

  // All slots are taken back; their sequences wait, keep their tokens and prefill again. Returns those that had a slot.
  std::vector<int64_t> retract_all();
  // The weights changed and sequences that have begun to answer go on with the cache they have: returns those. A state
  // that others could still fork, or that is not complete, is dropped and computed again.
  std::vector<int64_t> new_weights();

  int64_t num_unfinished() const { return static_cast<int64_t>(sequences_.size()); }
  int64_t num_free_slots() const { return num_free_; }
  int64_t num_running() const { return limits_.num_slots - num_free_; }  // that own a slot
  int64_t num_waiting() const { return num_unfinished() - num_running(); }

 private:
  struct Sequence {
    int64_t group = 0;
    int64_t length = 0, computed = 0;
    int64_t slot = -1;  // -1: waits in its group
  };
  // Ends with its last sequence. leader >= 0 exactly while a member with a slot computes or keeps the state that the
  // waiting ones will fork; a group with waiting members and no leader is in queue_.
  struct Group {
    int64_t shared = 0;  // tokens of the prompt
    int64_t num_members = 0;
    std::deque<int64_t> waiting;
    int64_t leader = -1;
  };

  void fork_waiting();
  void admit();
  void give_slot(int64_t sequence, int64_t computed);
  void take_slot(int64_t sequence);
  void retract(int64_t sequence);
  void requeue(int64_t group);
  bool parked(int64_t id, const Sequence& sequence) const;
  // How far a sequence computes before something else must happen: the prompt's end for a leader.
  int64_t target(int64_t id, const Sequence& sequence) const;
  bool decodes(int64_t id, const Sequence& sequence) const;

  SchedulerLimits limits_;
  std::unordered_map<int64_t, Sequence> sequences_;
  std::map<int64_t, Group> groups_;  // by arrival
  std::set<int64_t> queue_;          // groups that wait for a leader
  std::set<int64_t> open_;           // groups with a leader
  std::vector<int64_t> slots_;       // sequence that owns each slot, -1: free
  int64_t num_free_ = 0, next_sequence_ = 0, next_group_ = 0;
  // What plan() and computed() return, and a list of plan(); kept for their memory.
  StepPlan plan_;
  std::vector<int64_t> drawing_, prefill_;
};

}  // namespace rollout
