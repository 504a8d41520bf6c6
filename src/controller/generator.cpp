// Orders become requests of the engine; its outputs become groups again.
#include "controller/generator.h"

#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace controller {
using base::Code;

struct EngineGenerator::Pending {
  std::vector<data::Group> groups;
  std::unordered_map<int64_t, size_t> group_of;  // request of the engine -> place in groups
  int64_t unanswered = 0, answered = 0, num_tokens = 0;
};

namespace {

data::Sample to_sample(rollout::Output output, const data::Group& group) {
  if (output.ended == rollout::Ended::not_finite) {
    base::fail(Code::unavailable,
               "the answer to {} (group {}, sample {}) broke off: {}. Lower the learning rate, or go "
               "back to an earlier checkpoint",
               group.problem.id, group.id, output.index, output.error);
  }
  data::Sample sample;
  sample.group_id = group.id;
  sample.index = output.index;
  sample.seed = output.seed;
  sample.response_ids = std::move(output.response_ids);
  sample.log_probs = std::move(output.log_probs);
  sample.versions = std::move(output.versions);
  sample.experts = std::move(output.experts);
  sample.response = std::move(output.text);
  sample.finish = rollout::finish_reason(output.ended);
  return sample;
}

}  // namespace

void EngineGenerator::submit(const GenerateOrder& order, Pending& pending) {
  for (const Question& question : order.questions) {
    rollout::Request request;
    request.prompt_ids = question.problem->prompt_ids;
    request.sampling = order.sampling;
    request.num_samples = order.num_samples;
    request.record_experts = order.record_experts;
    request.seeds = rollout::group_seeds(question.seed, order.num_samples);
    pending.group_of[engine_.submit(std::move(request))] = pending.groups.size();
    data::Group& group = pending.groups.emplace_back();
    group.id = question.group_id;
    group.problem = *question.problem;
    group.samples.resize(static_cast<size_t>(order.num_samples));
    pending.unanswered += order.num_samples;
  }
}

// Until the engine has let go of everything: the next order starts from an empty one.
void EngineGenerator::cancel(const Pending& pending) {
  for (const auto& [request, place] : pending.group_of) engine_.cancel(request);
  while (!engine_.idle()) engine_.step();
}

std::optional<std::vector<data::Group>> EngineGenerator::generate(const GenerateOrder& order) {
  const std::lock_guard turn(turn_);
  Pending pending;
  try {
    submit(order, pending);
    while (pending.unanswered > 0) {
      if (order.stop()) {
        cancel(pending);
        return std::nullopt;
      }
      for (rollout::Output& output : engine_.step()) {
        const auto place = pending.group_of.find(output.request);
        CHECK(place != pending.group_of.end(), "request {} is of somebody else", output.request);
        data::Group& group = pending.groups[place->second];
        pending.num_tokens += static_cast<int64_t>(output.response_ids.size());
        const auto index = static_cast<size_t>(output.index);
        group.samples[index] = to_sample(std::move(output), group);
        --pending.unanswered;
        ++pending.answered;
      }
      order.progress(pending.answered, pending.num_tokens);
    }
  } catch (...) {
    cancel(pending);
    throw;
  }
  return std::move(pending.groups);
}

}  // namespace controller
