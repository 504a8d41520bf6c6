// The rollout engine inside this process: requests in, answers out, one forward pass over the whole batch per step.
//
// Every token carries the version of the weights that wrote it. Before the first commit to weights() requests wait. A
// pass over the batch gives each sequence what it would get alone, to the bit: tokens and log-probs do not depend on
// the other requests, on chunks, slots or threads, and re-scoring gives the log-probs that generation reported.
//
// Threads: any thread may call any function; step, pause and a commit of new weights exclude each other and are served
// in order of arrival, so a commit takes effect between two steps. health() never waits for a step. One thread calls
// step().
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/transformer.h"
#include "rollout/engine_weights.h"
#include "rollout/request.h"
#include "rollout/sampler.h"
#include "rollout/scheduler.h"
#include "rollout/settings.h"
#include "rollout/stop_text.h"
#include "rollout/turn_lock.h"
#include "tensor/recycle.h"

namespace rollout {

// What the engine must know of a tokenizer.
struct Vocabulary {
  // Bytes of an id (data::Tokenizer::bytes_of); must stay valid. Without it outputs have no text and stop texts are
  // refused.
  std::function<std::string_view(int32_t id)> bytes_of;
  std::vector<int32_t> ids_without_token;  // never sampled, refused in prompts (decisions 8)
};

// What a pause does to the answers in flight. abort: they end as cancelled, with the tokens they have. retract: they
// give back their slots, and after resume() they are prefilled again with the weights of then, keeping their tokens.
// in_place: they keep their caches, also over a commit.
enum class PauseMode { abort, retract, in_place };

struct Health {
  int64_t version = weight_sync::kNoVersion;
  bool paused = false;
  int64_t num_unfinished = 0;  // answers asked for and not yet returned
  int64_t num_running = 0;     // of which own a slot
  int64_t num_free_slots = 0;
  int64_t num_steps = 0;            // forward passes since the start
  int64_t num_computed_tokens = 0;  // by these passes, prefill and decode
  int64_t num_new_tokens = 0;       // drawn
};

class Engine {
 public:
  // Errors (invalid_argument): max_batch_tokens below num_slots, max_context above the model's, an unknown profile.
  Engine(const model::Config& config, const EngineSettings& settings, Vocabulary vocabulary = {},
         tensor::Device device = at::kCPU);

  // Returns the request's id; step() returns one Output per sample. Errors (invalid_argument): an empty prompt, an id
  // that is out of range or has no token, a prompt that leaves no room in max_context, bad parameters, bad seeds.
  int64_t submit(Request request);
  // Its unfinished samples end as cancelled at the next step, also while paused. Unknown or finished: nothing happens.
  void cancel(int64_t request);

  // One forward pass (none while paused, without weights or without work); returns the answers that have ended. An
  // error in the pass is thrown on; the answers in flight then lose their caches, not their tokens.
  std::vector<Output> step();
  bool idle() const { return num_unfinished_.load() == 0; }  // every answer asked for has been returned

  void pause(PauseMode mode);  // takes effect before it returns. A second pause replaces the mode.
  void resume();

  Health health() const;
  weight_sync::Sink& weights() { return weights_; }
  // For comparisons; not while an update may commit.
  const EngineWeights& engine_weights() const { return weights_; }
  const EngineSettings& settings() const { return settings_; }

 private:
  struct Answer {
    Answer(std::shared_ptr<const Request> r, int64_t request_id, int64_t index);
    void reserve(size_t num_tokens);        // so that taking a token allocates nothing
    int32_t token(int64_t position) const;  // of prompt and response
    int64_t length() const;

    std::shared_ptr<const Request> request;
    Output output;
    StopText text;
  };
  // A row of logits that someone wants: to draw from, or (scored >= 0) the log-prob of that id.
  struct RowUse {
    int64_t row = 0, sequence = 0;
    int32_t scored = -1;
    int64_t computed_by = 0;  // sequence whose token the row is: the leader's, for members that wait for a fork
  };
  // One pass; its memory is used again by the next.
  struct Batch {
    std::vector<model::Span> spans;
    std::vector<int64_t> sequences;            // of each span
    bool record_experts = false;               // of any of them
    std::vector<int64_t> ids, rows;            // rows: tokens of the pass whose logits are wanted
    std::vector<RowUse> uses;                  // by row
    std::vector<std::optional<Draw>> results;  // of each use
    model::Layout layout;
  };

  void check(const Request& request) const;
  void check_prompt(const Request& request) const;
  void take_inbox();
  void admit(int64_t id, Request request);
  void run_pass();
  void apply(const Fork& fork);
  int64_t experts_per_position() const;
  void make_batch(const StepPlan& plan);
  void add_uses(const Chunk& chunk);
  Tensor forward();
  void record_experts();
  Tensor device_ids(std::span<const int64_t> ids) const;
  void read_logits(const Tensor& streams_TMD);
  void read_rows(const Tensor& logits_RV, int64_t first_row, std::pair<size_t, size_t> uses);
  void accept(const RowUse& use, const std::optional<Draw>& result);
  void accept_token(int64_t sequence, const Draw& draw);
  std::optional<Ended> end_of(Answer& answer);
  bool is_stop_token(const SamplingParams& sampling, int32_t id) const;
  void finish(int64_t sequence, Ended ended);
  void retract_all();
  void after_update();
  void publish_health();

  const model::Config config_;
  const EngineSettings settings_;
  const Vocabulary vocabulary_;
  const tensor::Device device_;
  std::vector<bool> has_token_;  // by id
  Tensor absent_V_;              // bool; undefined if every id has a token

  std::mutex inbox_mutex_;
  std::vector<std::pair<int64_t, Request>> submitted_;
  std::vector<int64_t> cancelled_;
  int64_t next_request_ = 0;
  std::atomic<int64_t> num_unfinished_ = 0;

  TurnLock turn_;  // everything below, and swapping the weights
  EngineWeights weights_;
  model::Cache cache_;
  const model::RopeTables rope_;
  tensor::Recycler recycler_;  // results of the kernels of a pass
  Batch batch_;
  model::Choices choices_;
  Scheduler scheduler_;
  std::optional<PauseMode> paused_;
  std::unordered_map<int64_t, Answer> answers_;                  // by sequence
  std::unordered_map<int64_t, std::vector<int64_t>> sequences_;  // by request
  std::vector<Output> finished_;
  Health counters_;

  mutable std::mutex health_mutex_;
  Health health_;
};

}  // namespace rollout
