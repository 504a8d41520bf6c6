// The queue between collection and training, its thread, and its state as JSON.
#include "controller/pipeline.h"

#include <utility>

#include "base/check.h"
#include "data/json_fields.h"

namespace controller {
namespace {

base::Json to_json(const std::vector<data::Group>& groups) {
  base::Json list = base::Json::array();
  for (const data::Group& group : groups) list.push_back(data::to_json(group));
  return list;
}

std::vector<data::Group> groups_from(const base::Json& json, std::string_view key, const std::string& where) {
  std::vector<data::Group> groups;
  for (const base::Json& group : data::array_member(json, key, where)) {
    groups.push_back(data::group_from_json(group, where));
  }
  return groups;
}

base::Json to_json(const Collected& c) {
  return {{"groups", to_json(c.groups)}, {"dropped", to_json(c.dropped)}, {"rounds", c.num_rounds},
          {"tokens", c.num_tokens},      {"graded", c.scores.graded},     {"no_answer", c.scores.no_answer},
          {"failed", c.scores.failed},   {"generate_s", c.generate_s},    {"reward_s", c.reward_s}};
}

Collected collected_from(const base::Json& json, const std::string& where) {
  Collected c;
  c.groups = groups_from(json, "groups", where);
  c.dropped = groups_from(json, "dropped", where);
  c.num_rounds = data::integer_member(json, "rounds", where);
  c.num_tokens = data::integer_member(json, "tokens", where);
  c.scores.graded = data::integer_member(json, "graded", where);
  c.scores.no_answer = data::integer_member(json, "no_answer", where);
  c.scores.failed = data::integer_member(json, "failed", where);
  c.generate_s = data::number_member(json, "generate_s", where);
  c.reward_s = data::number_member(json, "reward_s", where);
  return c;
}

}  // namespace

Pipeline::Pipeline(Collector& collector, int64_t max_staleness, StopAsked stop, Collector::Progress progress)
    : collector_(collector),
      max_staleness_(max_staleness),
      stop_(std::move(stop)),
      progress_(std::move(progress)),
      collected_(collector.state()) {}

Pipeline::~Pipeline() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
}

void Pipeline::restore(const base::Json& state, const std::string& where) {
  CHECK(!thread_.joinable(), "restore after start");
  collected_ = CollectorState::from_json(data::member(state, "collector", where), where + ": collector");
  collector_.restore(collected_);
  ready_.clear();
  for (const base::Json& step : data::array_member(state, "ready", where)) {
    ready_.push_back(collected_from(step, where + ": ready"));
  }
}

base::Json Pipeline::state() const {
  const std::lock_guard guard(mutex_);
  base::Json ready = base::Json::array();
  for (const Collected& step : ready_) ready.push_back(to_json(step));
  return {{"collector", collected_.to_json()}, {"ready", std::move(ready)}};
}

void Pipeline::start(int64_t step, int64_t last_step) {
  step_ = step;
  last_step_ = last_step;
  version_ = step;
  const int64_t first = step + static_cast<int64_t>(ready_.size());
  if (max_staleness_ > 0) thread_ = std::jthread([this, first] { collect_ahead(first); });
}

void Pipeline::published(int64_t version) {
  {
    const std::lock_guard guard(mutex_);
    version_ = version;
  }
  changed_.notify_all();
}

void Pipeline::collect_one(int64_t step) {
  const StopAsked stop = [this] {
    if (stop_()) return true;
    const std::lock_guard guard(mutex_);
    return ending_;
  };
  std::optional<Collected> collected = collector_.collect(step, stop, progress_);
  const std::lock_guard guard(mutex_);
  ended_ = !collected;
  if (!collected) return;
  ready_.push_back(std::move(*collected));
  collected_ = collector_.state();
}

void Pipeline::collect_ahead(int64_t first_step) {
  try {
    for (int64_t step = first_step; step < last_step_ && !ended_; ++step) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ending_ || step - version_ <= max_staleness_; });
        if (ending_) return;
      }
      collect_one(step);
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard guard(mutex_);
    error_ = std::current_exception();
  }
  {
    const std::lock_guard guard(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

std::optional<Collected> Pipeline::next() {
  if (max_staleness_ == 0 && ready_.empty()) collect_one(step_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || ended_; });
  if (error_) std::rethrow_exception(error_);
  if (ready_.empty()) return std::nullopt;
  ++step_;
  Collected collected = std::move(ready_.front());
  ready_.pop_front();
  return collected;
}

void Pipeline::give_back(Collected collected) {
  const std::lock_guard guard(mutex_);
  --step_;
  ready_.push_front(std::move(collected));
}

}  // namespace controller
