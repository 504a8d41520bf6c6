// A pass over a set with sampling, one without, and the figures from both.
#include "controller/evaluation.h"

#include <set>

#include "base/rng.h"
#include "metrics/pass_at_k.h"

namespace controller {
using base::Code;
namespace {

// The same for rows that are repeated in a file. Prompts and labels hold no byte 0.
std::string key_of(const data::Problem& problem) { return problem.prompt + '\0' + problem.label; }

std::string text_of(const base::Json& value) {
  return value.is_string() ? value.get<std::string>() : base::to_line(value);
}

metrics::EvalAnswer answer_of(const data::Problem& problem, const data::Sample& sample,
                              const std::vector<std::string>& by) {
  metrics::EvalAnswer answer;
  answer.problem = key_of(problem);
  answer.reward = sample.reward;
  answer.truncated = sample.finish == data::FinishReason::length;
  answer.length = static_cast<int64_t>(sample.response_ids.size());
  for (const std::string& key : by) {
    const bool there = problem.metadata.is_object() && problem.metadata.contains(key);
    answer.tags.emplace_back(key, there ? text_of(problem.metadata[key]) : "(none)");
  }
  return answer;
}

// One pass over the set.
struct Pass {
  int64_t num_samples = 1;
  rollout::SamplingParams sampling;
  uint64_t seed = 0;
};

struct Scored {
  std::vector<data::Group> groups;
  int64_t num_failed = 0;
};

std::optional<Scored> run_pass(const EvalSet& set, const Pass& pass, Generator& generator, const ScoreGroups& score,
                               const StopAsked& stop, const Collector::Progress& progress) {
  GenerateOrder order;
  for (size_t row = 0; row < set.problems.size(); ++row) {
    order.questions.push_back({&set.problems[row], static_cast<int64_t>(row), base::derive_seed(pass.seed, row)});
  }
  order.num_samples = pass.num_samples;
  order.sampling = pass.sampling;
  order.stop = stop;
  const auto asked = static_cast<int64_t>(order.questions.size()) * order.num_samples;
  order.progress = [&](int64_t answered, int64_t num_tokens) { progress(answered, asked, num_tokens); };
  std::optional<std::vector<data::Group>> groups = generator.generate(order);
  if (!groups) return std::nullopt;
  const rewards::ScoreTotals totals = score(*groups, stop);
  if (!totals.complete) return std::nullopt;
  return Scored{std::move(*groups), totals.failed};
}

}  // namespace

void check_sets(std::span<const EvalSet> sets) {
  std::set<std::string> names;
  for (const EvalSet& set : sets) {
    if (!names.insert(set.settings.name).second) {
      base::fail(Code::invalid_argument, "eval.sets: two sets have the name \"{}\"; give each its own",
                 set.settings.name);
    }
    if (set.problems.empty()) {
      base::fail(Code::invalid_argument, "eval.sets: the set \"{}\" has no problems; is its file empty?",
                 set.settings.name);
    }
  }
}

std::optional<EvalResult> evaluate_set(const EvalSet& set, int64_t step, uint64_t run_seed, Generator& generator,
                                       const ScoreGroups& score, const StopAsked& stop,
                                       const Collector::Progress& progress) {
  const EvalSetSettings& settings = set.settings;
  Pass pass{settings.num_samples, settings.sampling, base::derive_seed(run_seed, "eval/" + settings.name)};
  std::optional<Scored> sampled = run_pass(set, pass, generator, score, stop, progress);
  if (!sampled) return std::nullopt;
  Scored greedy;
  if (settings.greedy) {
    pass.num_samples = 1;
    pass.sampling.temperature = 0;
    std::optional<Scored> answers = run_pass(set, pass, generator, score, stop, progress);
    if (!answers) return std::nullopt;
    greedy = std::move(*answers);
  }
  metrics::EvalTally tally;
  for (const data::Group& group : sampled->groups) {
    for (const data::Sample& sample : group.samples) tally.add(answer_of(group.problem, sample, settings.by));
  }
  for (const data::Group& group : greedy.groups) {
    tally.add_greedy(answer_of(group.problem, group.samples.front(), settings.by));
  }
  EvalResult result{tally.record(step, settings.name, metrics::usual_ks(settings.num_samples)),
                    std::move(sampled->groups), std::move(greedy.groups)};
  result.record.missing = sampled->num_failed;
  return result;
}

}  // namespace controller
