// Reinforcement learning, step by step. One driver for both ways to run: with rollout.max_staleness 0 each step is
// sampled by its own weights; above 0 generation goes on while the actor trains.
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "controller/collector.h"
#include "controller/epoch_order.h"
#include "controller/judges.h"
#include "controller/pipeline.h"
#include "controller/run.h"
#include "rollout/engine.h"

namespace controller {

class Controller {
 public:
  // run stands in the learning phase; run and actor must outlive the controller. Allocates the engine.
  Controller(Run& run, actor::Actor& actor);

  // From where the run stands to its last step. False: stopped; the state is saved.
  bool learn();

 private:
  struct Bar;

  std::optional<Collected> collect();
  std::optional<actor::StepReport> train(Collected& collected);
  std::optional<int64_t> exact_version() const;
  void publish();
  bool evaluate_if_due();
  void write(const Collected& collected, const actor::StepReport& report);
  std::optional<double> score() const;
  void save_if_due();
  void save(std::optional<double> score = std::nullopt);
  bool stopped();
  void show(int64_t answered, int64_t asked, int64_t num_tokens);
  CollectorParts collector_parts();

  Run& run_;
  actor::Actor& actor_;
  rollout::Engine engine_;
  EngineGenerator generator_;
  Judges judges_;
  EpochOrder order_;
  std::vector<metrics::EvalRecord> evaluated_;  // of the step in flight
  base::Clock clock_;

  std::mutex bar_mutex_;
  report::Console::Phase* bar_ = nullptr;  // guarded by bar_mutex_: what show() moves
  double bar_start_s_ = 0;                 // guarded by bar_mutex_

  Collector collector_;
  Pipeline pipeline_;  // last: its thread uses the rest
};

}  // namespace controller
