// Hands the groups of step after step to the trainer, no older than max_staleness allows.
//
// With max_staleness 0 the groups of a step are collected when the trainer asks for them, on its thread, with the
// weights of that step: the run is the same each time. Above 0 a thread of its own collects ahead while the trainer
// works: the groups of step s once version s - max_staleness is published, so that no token of them is older; at that
// limit it waits. What is collected and not yet trained on is part of the state, so that a resumed run loses nothing
// that was complete.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/json.h"
#include "controller/collector.h"

namespace controller {

class Pipeline {
 public:
  // collector must outlive it. stop and progress may be called on the pipeline's thread.
  Pipeline(Collector& collector, int64_t max_staleness, StopAsked stop, Collector::Progress progress);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline();  // gives up what is being collected

  // Before start(). Errors: corruption naming `where`.
  void restore(const base::Json& state, const std::string& where);

  // Version `step` is published and is trained next; the groups of last_step are not collected.
  void start(int64_t step, int64_t last_step);
  void published(int64_t version);

  // The groups for the step that start() named, then for the ones after it. nullopt: stop said true. Errors of the
  // collection come out here.
  std::optional<Collected> next();

  // Undoes next(): the step was not trained, and what was collected for it comes again.
  void give_back(Collected collected);

  // Between next() of one step and of the following: collected steps and the collector as it stood after the last.
  base::Json state() const;

 private:
  void collect_ahead(int64_t first_step);
  void collect_one(int64_t step);

  Collector& collector_;
  const int64_t max_staleness_;
  const StopAsked stop_;
  const Collector::Progress progress_;
  int64_t step_ = 0, last_step_ = 0;  // step_: what next() returns

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::deque<Collected> ready_;  // of step_ and the steps after it
  CollectorState collected_;     // the collector after the last of ready_
  int64_t version_ = 0;
  bool ended_ = false;   // the thread collects no more: stop, an error, or the last step
  bool ending_ = false;  // the thread shall end
  std::exception_ptr error_;

  std::jthread thread_;
};

}  // namespace controller
