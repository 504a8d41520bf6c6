// Two forward passes over the same tokens, side by side: where their streams part, and whether each computes what its
// config and weights say.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "compare/forward.h"
#include "compare/sites.h"

namespace compare {

struct WalkOptions {
  double temperature = 1;
  // Relative difference of a row from which on streams have parted. 0: any difference, for sides that promise the same
  // bits. Above 0 the choices of experts by score and of entries are left out: rounding turns near ties over.
  double tolerance = 0;
  // Both sides round alike: each is held against its definition in the layer where streams part; else in every layer.
  bool same_precision = true;
};

// One line of the table of sites.
struct SiteRow {
  int64_t layer = 0;
  model::Site site = model::Site::embedding;
  int64_t rows = 0, differing = 0;
  double worst_relative = 0;
  bool other_shape = false;
};

// The first place, in order of computation, where the sides differ beyond the tolerance.
struct Parting {
  int64_t layer = 0;                // num_hidden_layers: after the last
  std::optional<model::Site> site;  // nothing: the log-probs, from equal hidden rows
  SiteDifference difference;
  std::array<LayerRecord, 2> records;  // of that layer; empty for the embedding and after the last layer
};

// A side that does not compute what its config and weights say, from its own streams.
struct Departure {
  int64_t layer = 0;
  model::Site site = model::Site::embedding;
  SiteDifference difference;  // of what it computes and what it should
  LayerRecord record;         // what it computes
};

struct Walk {
  Ids ids;
  std::vector<std::vector<float>>
      streams;  // after the embedding and after each layer: relative difference of each token
  std::vector<SiteRow> sites;
  std::optional<Parting> parting;
  std::array<std::optional<Departure>, 2> departures;
  std::array<LogProbs, 2> log_probs;
};

// Why two models cannot be walked together: sizes that do not fit; nothing when they can.
std::optional<std::string> why_not_side_by_side(const model::Config& a, const model::Config& b);

// CHECK: they can. watch sees layers. Throws Stopped.
Walk walk(Forward& a, Forward& b, const Ids& ids, const WalkOptions& options, const Watch& watch);

}  // namespace compare
