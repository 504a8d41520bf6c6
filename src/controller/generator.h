// Answers to many problems at once: what collector and evaluation ask of a rollout engine. Faked in tests.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "data/sample.h"
#include "rollout/engine.h"
#include "rollout/request.h"

namespace controller {

// True: give up. Asked often, from any thread.
using StopAsked = std::function<bool()>;

struct Question {
  const data::Problem* problem = nullptr;
  int64_t group_id = 0;
  uint64_t seed = 0;  // its samples get rollout::group_seeds(seed, num_samples)
};

struct GenerateOrder {
  std::vector<Question> questions;
  int64_t num_samples = 1;
  rollout::SamplingParams sampling;
  bool record_experts = false;
  StopAsked stop = [] { return false; };
  std::function<void(int64_t answered, int64_t num_tokens)> progress = [](int64_t, int64_t) {};
};

class Generator {
 public:
  virtual ~Generator() = default;
  // One group per question in their order, its samples by index, rewards not set. nullopt: stop said true, and nothing
  // of the order is left behind. Errors: those of the engine; unavailable when weights gave logits that are not finite.
  virtual std::optional<std::vector<data::Group>> generate(const GenerateOrder& order) = 0;
  // Of the weights that would answer now.
  virtual int64_t version() const = 0;
};

// Drives an engine in this process on the calling thread. Any thread may call; orders are served one after the other,
// in order of arrival. Weights may be published meanwhile.
class EngineGenerator : public Generator {
 public:
  explicit EngineGenerator(rollout::Engine& engine) : engine_(engine) {}

  std::optional<std::vector<data::Group>> generate(const GenerateOrder& order) override;
  int64_t version() const override { return engine_.health().version; }

 private:
  struct Pending;
  void submit(const GenerateOrder& order, Pending& pending);
  void cancel(const Pending& pending);

  rollout::Engine& engine_;
  rollout::TurnLock turn_;  // one order at a time
};

}  // namespace controller
