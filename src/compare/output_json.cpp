// The JSON form.
#include <cmath>

#include "compare/output.h"

namespace compare {
namespace {

using base::Json;

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json side_json(int side) { return side < 0 ? Json(nullptr) : Json(side == 0 ? "A" : "B"); }

Json differences_json(const Comparison& comparison) {
  const Differences& d = comparison.differences;
  Json json = {{"tokens", d.compared},
               {"equal", d.equal},
               {"all_equal", d.all_equal()},
               {"impossible_on_both", d.impossible},
               {"missing", d.missing},
               {"not_finite", d.absolute.nonfinite},
               {"mean", d.absolute.mean},
               {"p50", d.absolute.p50},
               {"p99", d.absolute.p99},
               {"max", d.absolute.max},
               {"mean_signed", number(d.mean_signed)}};
  json["worst"] = Json::array();
  for (const TokenDifference& token : d.worst) {
    const Surroundings around = surroundings(comparison, token.sequence, token.position);
    json["worst"].push_back({{"sequence", comparison.sequences[token.sequence].where},
                             {"position", token.position},
                             {"id", comparison.sequences[token.sequence].ids[static_cast<size_t>(token.position)]},
                             {"a", number(token.a)},
                             {"b", number(token.b)},
                             {"difference", number(token.difference)},
                             {"before", around.before},
                             {"text", token_text(comparison, token.sequence, token.position)},
                             {"after", around.after}});
  }
  return json;
}

Json diagnosis_json(const Diagnosis& diagnosis) {
  Json json = {{"line", diagnosis.line}, {"causes", Json::array()}};
  for (const Cause& cause : diagnosis.causes) {
    json["causes"].push_back(
        {{"id", cause.id}, {"side", side_json(cause.side)}, {"text", cause.text}, {"evidence", cause.evidence}});
  }
  return json;
}

Json parting_json(const Parting& parting) {
  const SiteDifference& d = parting.difference;
  return {{"layer", parting.layer},
          {"site", parting.site ? site_key(*parting.site) : "log_prob"},
          {"rows", d.rows},
          {"differing", d.differing},
          {"first", d.first},
          {"worst", d.worst},
          {"worst_relative", number(d.worst_relative)}};
}

Json walk_json(const Comparison& comparison, const WalkedSequence& walked) {
  Json json = {{"sequence", comparison.sequences[walked.sequence].where}, {"tokens", walked.walk.ids.size()}};
  json["parting"] = walked.walk.parting ? parting_json(*walked.walk.parting) : Json(nullptr);
  json["diagnosis"] = walked.diagnosis ? diagnosis_json(*walked.diagnosis) : Json(nullptr);
  json["sites"] = Json::array();
  for (const SiteRow& row : walked.walk.sites) {
    json["sites"].push_back({{"layer", row.layer},
                             {"site", site_key(row.site)},
                             {"rows", row.rows},
                             {"differing", row.differing},
                             {"worst_relative", number(row.worst_relative)}});
  }
  return json;
}

}  // namespace

Json to_json(const Comparison& comparison) {
  Json json = {{"a", comparison.names[0]},
               {"b", comparison.names[1]},
               {"temperature", comparison.temperature},
               {"sequences", comparison.sequences.size()},
               {"log_probs", differences_json(comparison)},
               {"patterns", comparison.patterns}};
  json["not_walked"] = comparison.no_walk ? Json(*comparison.no_walk) : Json(nullptr);
  json["tolerance"] = comparison.tolerance;
  json["walks"] = Json::array();
  for (const WalkedSequence& walked : comparison.walks) json["walks"].push_back(walk_json(comparison, walked));
  return json;
}

}  // namespace compare
