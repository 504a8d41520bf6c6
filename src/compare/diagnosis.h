// From the place where two sides part to what is wrong.
//
// A side that departs from its own definition is explained by the variation that gives exactly what it computed
// (variations.h). Else the definitions differ: a field of the config, or parameters, each tried by giving one side the
// other's, from its own streams. What no trial confirms is said to be unexplained.
#pragma once
#include <string>
#include <vector>

#include "compare/walk.h"
#include "compare/weight_difference.h"

namespace compare {

struct Cause {
  std::string id;  // "hash_table", "comb_transposed", "shared_clamp", "e8m0_as_number", ...: docs/compare.md lists them
  int side = -1;   // 0: A, 1: B; -1: the difference does not tell which
  std::string text;  // one line
  std::vector<std::string> evidence;
};

struct Diagnosis {
  std::string line;  // place and first cause, one line
  std::vector<Cause> causes;
};

// The place: "router choice differs in 3 of 512 tokens at layer 2, hash-routed".
std::string place_text(const Parting& parting, const model::Config& config);

// Of a walk that has a parting, or (sides of unequal precision) of any.
Diagnosis diagnose(const Forward& a, const Forward& b, const Walk& walk, bool same_precision, const Watch& watch);

// Names of the parameters that decide a site, given everything before it.
std::vector<std::string> parameters_of_site(int64_t layer, int64_t num_layers, std::optional<model::Site> site);

}  // namespace compare
