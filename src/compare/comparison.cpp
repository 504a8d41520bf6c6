// Scores, then figures, then the walk where there can be one.
#include "compare/comparison.h"

#include <algorithm>

#include "base/error.h"

namespace compare {
namespace {

// Position of the first difference of a sequence.
std::optional<size_t> first_difference(const LogProbs& a, const LogProbs& b) {
  for (size_t t = 1; t < a.size(); ++t) {
    if (a[t] && b[t] && *a[t] != *b[t]) return t;
  }
  return std::nullopt;
}

constexpr size_t kNever = SIZE_MAX;  // position of the first difference of a sequence without one

struct Candidate {
  size_t sequence, tokens;
};

// Sequences that differ, shortest way to the first difference first; then, if asked for, those that do not.
std::vector<Candidate> to_walk(const Comparison& comparison, const CompareOptions& options) {
  using When = CompareOptions::WalkWhen;
  std::vector<std::pair<size_t, Candidate>> found;
  const auto most = static_cast<size_t>(options.walk_tokens);
  for (size_t s = 0; s < comparison.sequences.size(); ++s) {
    const size_t length = comparison.sequences[s].ids.size();
    const auto first = first_difference(comparison.log_probs[0][s], comparison.log_probs[1][s]);
    if (!first && options.walk != When::always) continue;
    // The first token that differs is part of the walk even when it lies beyond the limit.
    const size_t tokens = std::min(length, std::max(most, first.value_or(0) + 1));
    found.push_back({first.value_or(kNever), {s, tokens}});
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& l, const auto& r) { return l.first < r.first; });
  if (found.size() > static_cast<size_t>(options.walk_sequences))
    found.resize(static_cast<size_t>(options.walk_sequences));
  std::vector<Candidate> chosen;
  for (const auto& [key, candidate] : found) chosen.push_back(candidate);
  return chosen;
}

// A side whose scorer does not give what its own forward pass gives: the difference is made outside of the layers.
void check_scorer(size_t side, const Comparison& comparison, const Forward& forward, WalkedSequence& walked) {
  const LogProbs &scored = comparison.log_probs[side][walked.sequence], &own = walked.walk.log_probs[side];
  int64_t differing = 0;
  for (size_t t = 1; t < own.size(); ++t) {
    const bool floored = scored[t] && own[t] && *scored[t] <= kImpossible && *own[t] <= kImpossible;
    if (scored[t] != own[t] && !floored) ++differing;
  }
  if (differing == 0) return;
  if (!walked.diagnosis) walked.diagnosis.emplace();
  const std::string text = fmt::format(
      "its log-probs are not those of its own layers, run {}: {} of {} tokens differ; the mistake lies in batching, "
      "cache "
      "or softmax",
      forward.path(), differing, own.size() - 1);
  walked.diagnosis->causes.push_back({"scoring", static_cast<int>(side), text, {}});
  if (walked.diagnosis->line.empty()) {
    walked.diagnosis->line = fmt::format("streams agree: {}: {}", side == 0 ? "A" : "B", text);
  }
}

void walk_one(Comparison& comparison, const Candidate& candidate, const std::array<Forward*, 2>& forwards,
              const WalkOptions& options, const Watch& watch) {
  const Ids& all = comparison.sequences[candidate.sequence].ids;
  const Ids ids(all.begin(), all.begin() + static_cast<int64_t>(candidate.tokens));
  WalkedSequence walked{candidate.sequence, walk(*forwards[0], *forwards[1], ids, options, watch), std::nullopt};
  if (walked.walk.parting || (!options.same_precision && walked.walk.log_probs[0] != walked.walk.log_probs[1])) {
    walked.diagnosis = diagnose(*forwards[0], *forwards[1], walked.walk, options.same_precision, watch);
  }
  for (size_t s = 0; s < 2; ++s) check_scorer(s, comparison, *forwards[s], walked);
  comparison.walks.push_back(std::move(walked));
}

void walk_all(Side& a, Side& b, const CompareOptions& options, const Watch& watch, Comparison& comparison) {
  if (options.walk == CompareOptions::WalkWhen::never) {
    comparison.no_walk = "it was not asked for";
    return;
  }
  const std::unique_ptr<Forward> left = a.forward(), right = b.forward();
  if (left == nullptr || right == nullptr) {
    comparison.no_walk = fmt::format("{} gives log-probs only", left == nullptr ? a.name() : b.name());
    return;
  }
  comparison.no_walk = why_not_side_by_side(left->weights().config, right->weights().config);
  if (comparison.no_walk) return;
  const std::vector<Candidate> candidates = to_walk(comparison, options);
  if (candidates.empty()) comparison.no_walk = "there is no difference to look for";
  WalkOptions walk_options;
  walk_options.temperature = options.temperature;
  // Of two profiles of one name the roundings are the same; simulations make the name another.
  walk_options.same_precision = left->profile() == right->profile();
  walk_options.tolerance = options.tolerance != CompareOptions::kUnset ? options.tolerance
                           : walk_options.same_precision               ? 0
                                                                       : kLooseTolerance;
  comparison.tolerance = walk_options.tolerance;
  for (const Candidate& candidate : candidates) {
    walk_one(comparison, candidate, {left.get(), right.get()}, walk_options, watch);
  }
}

}  // namespace

const Diagnosis* Comparison::diagnosis() const {
  for (const WalkedSequence& walked : walks) {
    if (walked.diagnosis) return &*walked.diagnosis;
  }
  return nullptr;
}

Comparison compare_sides(Side& a, Side& b, std::vector<Sequence> sequences, const CompareOptions& options,
                         const Watch& watch) {
  Comparison comparison;
  comparison.names = {a.name(), b.name()};
  comparison.sequences = std::move(sequences);
  comparison.temperature = options.temperature;
  comparison.log_probs = {a.score(comparison.sequences, options.temperature, watch),
                          b.score(comparison.sequences, options.temperature, watch)};
  comparison.differences =
      compare_log_probs(comparison.log_probs[0], comparison.log_probs[1], static_cast<size_t>(options.num_worst));
  if (comparison.differences.compared + comparison.differences.impossible == 0) {
    base::fail(
        base::Code::invalid_argument,
        "no token has a log-prob on both sides: sequences need two tokens or more, and values that are not null");
  }
  comparison.patterns = patterns(comparison.log_probs[0], comparison.log_probs[1]);
  walk_all(a, b, options, watch, comparison);
  return comparison;
}

}  // namespace compare
