// One comparison: both sides score the same tokens; where both compute here, they are walked layer by layer.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis.h"
#include "compare/differences.h"
#include "compare/walk.h"

namespace compare {

struct CompareOptions {
  double temperature = 1;
  int64_t num_worst = 10;
  enum class WalkWhen { differing, always, never } walk = WalkWhen::differing;
  int64_t walk_sequences = 2;
  int64_t walk_tokens = 1024;  // of each, and up to its first difference
  double tolerance = kUnset;   // WalkOptions::tolerance; unset: 0 for sides of one precision, else kLooseTolerance
  static constexpr double kUnset = -1;
};
inline constexpr double kLooseTolerance = 0.1;

struct WalkedSequence {
  size_t sequence = 0;  // index
  Walk walk;
  std::optional<Diagnosis> diagnosis;
};

struct Comparison {
  std::array<std::string, 2> names;
  std::vector<Sequence> sequences;
  double temperature = 1;
  std::array<std::vector<LogProbs>, 2> log_probs;
  Differences differences;
  std::vector<std::string> patterns;
  std::vector<WalkedSequence> walks;
  double tolerance = 0;                // of the walks
  std::optional<std::string> no_walk;  // why there is none

  // What a token's text is; decodes a run of ids. Empty: ids only.
  std::function<std::string(std::span<const int32_t> ids)> decode;

  // The first diagnosis, if there is one.
  const Diagnosis* diagnosis() const;
};

// Errors: those of the sides; invalid_argument when no token of the sequences has a log-prob. Throws Stopped.
Comparison compare_sides(Side& a, Side& b, std::vector<Sequence> sequences, const CompareOptions& options,
                         const Watch& watch);

}  // namespace compare
