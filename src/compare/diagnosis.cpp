// Trials of explanations, and how they are put into words.
#include "compare/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compare/config_difference.h"
#include "compare/variations.h"

namespace compare {
namespace {

using model::Site;

constexpr std::array<const char*, 2> kSides = {"A", "B"};
constexpr size_t kShownTensors = 6;

bool of_entries(Site site) { return site == Site::compressor || site == Site::index_compressor; }

std::string relative_text(double relative) { return relative == 0 ? "0" : fmt::format("{:.2g}", relative); }

// Rows beyond the tolerance, which is any difference unless one was set.
std::string rows_text(const SiteDifference& difference, std::optional<Site> site) {
  return fmt::format("{} of {} {}", difference.beyond > 0 ? difference.beyond : difference.differing, difference.rows,
                     site && of_entries(*site) ? "entries" : "tokens");
}

// What decides each site; "L" stands for "layers.N.".
const std::map<Site, std::vector<std::string>>& site_parameters() {
  static const std::map<Site, std::vector<std::string>> kTable = {
      {Site::embedding, {"embed.weight"}},
      {Site::attn_hc_pre, {"Lhc_attn_"}},
      {Site::query, {"Lattn_norm.", "Lattn.wq_a.", "Lattn.q_norm.", "Lattn.wq_b."}},
      {Site::window_kv, {"Lattn_norm.", "Lattn.wkv.", "Lattn.kv_norm."}},
      {Site::compressor, {"Lattn_norm.", "Lattn.compressor."}},
      {Site::index_compressor, {"Lattn_norm.", "Lattn.indexer.compressor."}},
      {Site::indexer_choice, {"Lattn_norm.", "Lattn.wq_a.", "Lattn.q_norm.", "Lattn.indexer."}},
      {Site::attention, {"Lattn.attn_sink"}},
      {Site::attn_output, {"Lattn.wo_a.", "Lattn.wo_b."}},
      {Site::attn_hc_post, {"Lhc_attn_"}},
      {Site::ffn_hc_pre, {"Lhc_ffn_"}},
      {Site::router_choice, {"Lffn_norm.", "Lffn.gate."}},
      {Site::router_weight, {"Lffn_norm.", "Lffn.gate."}},
      {Site::shared_output, {"Lffn_norm.", "Lffn.shared_experts."}},
      {Site::expert_output, {"Lffn_norm.", "Lffn.experts."}},
      {Site::ffn_hc_post, {"Lhc_ffn_"}},
      {Site::final_hidden, {"norm.weight", "hc_head_"}},
  };
  return kTable;
}

struct CauseKind {
  const char *id, *text;
};
CauseKind kind_of(WeightKind kind) {
  switch (kind) {
    case WeightKind::rows_permuted:
    case WeightKind::experts_renamed:
    case WeightKind::table:
      return {"hash_table", "the table differs"};
    case WeightKind::e8m0_as_number:
      return {"e8m0_as_number", "e8m0 scales were read as numbers"};
    case WeightKind::scales:
      return {"stale_scales", "scales that do not belong to the codes, as after an update that left old ones (stale)"};
    case WeightKind::other_format:
      return {"precision", "other number formats"};
    case WeightKind::values:
      break;
  }
  return {"weights", "parameters differ"};
}

std::string field_id(const std::string& field) {
  static const std::map<std::string, std::string> kIds = {
      {"sliding_window", "window"},     {"clamp_shared_expert", "shared_clamp"},
      {"rope_theta", "rope"},           {"compress_rope_theta", "rope"},
      {"rope_scaling", "rope"},         {"qk_rope_head_dim", "rope"},
      {"hc_sinkhorn_iters", "sinkhorn"}};
  const auto at = kIds.find(field);
  return at == kIds.end() ? "config" : at->second;
}

class Doctor {
 public:
  Doctor(const Forward& a, const Forward& b, const Walk& walk, bool same_precision, const Watch& watch)
      : sides_{&a, &b}, walk_(walk), same_precision_(same_precision), watch_(watch) {}

  Diagnosis run() {
    for (size_t s = 0; s < 2; ++s) {
      if (walk_.departures[s]) explain_departure(s, *walk_.departures[s]);
    }
    // What two sides of one precision say they compute matters only where neither departs from it.
    if (diagnosis_.causes.empty() || !same_precision_) explain_definitions();
    if (diagnosis_.causes.empty()) unexplained();
    const std::string place =
        walk_.parting ? place_text(*walk_.parting, config(0)) : "streams stay within the tolerance";
    const Cause& first = diagnosis_.causes.front();
    const std::string side = first.side < 0 ? "" : std::string(kSides[static_cast<size_t>(first.side)]) + " ";
    diagnosis_.line = fmt::format("{}: {}{}", place, side, first.text);
    return std::move(diagnosis_);
  }

 private:
  const model::Config& config(size_t side) const { return sides_[side]->weights().config; }

  Definition definition_of(size_t side) const {
    return Definition::of(sides_[side]->weights(), sides_[side]->profile(), static_cast<int64_t>(walk_.ids.size()));
  }

  // How far a layer run from a side's streams is from what some side computed there.
  SiteDifference gap(const Definition& definition, const LayerRecord& from, const LayerRecord& wanted,
                     Site site) const {
    const LayerRecord record = run_layer(definition, walk_.ids, from.layer, from.input_TMD);
    return compare_rows(site, site_value(record, site), site_value(wanted, site));
  }

  void explain_departure(size_t side, const Departure& departure) {
    const Definition definition = definition_of(side);
    const std::string found = fmt::format(
        "{} departs from its config and weights at layer {}, {}: {}, first {}, largest relative difference {}",
        kSides[side], departure.layer, site_text(departure.site), rows_text(departure.difference, departure.site),
        departure.difference.first, relative_text(departure.difference.worst_relative));
    for (const Variation& variation : variations_of(definition, departure.layer)) {
      if (std::find(variation.sites.begin(), variation.sites.end(), departure.site) == variation.sites.end()) continue;
      Definition varied = definition;
      variation.apply(varied);
      if (gap(varied, departure.record, departure.record, departure.site).any()) continue;
      diagnosis_.causes.push_back(
          {variation.id,
           static_cast<int>(side),
           variation.text,
           {found, fmt::format("computing so gives what {} computed, to the bit", kSides[side])}});
      return;
    }
    diagnosis_.causes.push_back(
        {"departure",
         static_cast<int>(side),
         fmt::format("does not compute what its config and weights say, {}", sides_[side]->path()),
         {found, "no known mistake gives what it computed"}});
  }

  // ---- Definitions that differ.

  void explain_definitions() {
    const std::vector<ConfigDifference> fields = config_differences(config(0), config(1));
    const WeightComparison weights = compare_weights(parameters(0), parameters(1), wanted_names(), watch_);
    if (walk_.parting) try_fields(fields);
    if (!weights.differences.empty()) add_weights(weights);
    if (diagnosis_.causes.empty()) {
      for (const ConfigDifference& field : fields) add_field(field, "not confirmed by computing with the other value");
    }
    if (diagnosis_.causes.empty()) add_precision();
    if (diagnosis_.causes.empty()) add_vocabulary();
  }

  Parameters parameters(size_t side) const { return {sides_[side]->weights(), sides_[side]->profile()}; }

  // Where streams part with equal roundings, what stands before is equal: the parameters of that place are enough.
  std::function<bool(const std::string&)> wanted_names() const {
    if (!same_precision_ || !walk_.parting) return nullptr;
    return [prefixes = parameters_of_site(walk_.parting->layer, config(0).num_hidden_layers, walk_.parting->site)](
               const std::string& name) {
      return std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& p) { return name.starts_with(p); });
    };
  }

  // Whether A, from its own streams and so changed, gives what B computed at the parting: to the bit, or (unequal
  // precision) four times closer than unchanged.
  bool gives_b(const Definition& changed) const {
    const Parting& parting = *walk_.parting;
    if (!parting.site || !parting.records[0].input_TMD.defined()) return false;
    const SiteDifference after = gap(changed, parting.records[0], parting.records[1], *parting.site);
    if (same_precision_) return !after.any();
    return !after.other_shape && after.worst_relative < parting.difference.worst_relative / 4;
  }

  void try_fields(const std::vector<ConfigDifference>& fields) {
    for (const ConfigDifference& field : fields) {
      if (field.field->sizes) continue;
      Definition changed = definition_of(0);
      field.field->take(changed.weights.config, config(1));
      changed.follow_config();
      if (gives_b(changed)) {
        add_field(field, same_precision_ ? "A with B's value computes what B computed, to the bit"
                                         : "A with B's value comes close to what B computed");
      }
    }
  }

  void add_field(const ConfigDifference& field, const std::string& evidence) {
    const std::string& name = field.field->name;
    const std::string text =
        name == "clamp_shared_expert"
            ? fmt::format("the shared expert is clamped on {} only (clamp_shared_expert {} on A, {} on B)",
                          field.a == "true" ? "A" : "B", field.a, field.b)
            : fmt::format("{} is {} on A and {} on B", name, field.a, field.b);
    diagnosis_.causes.push_back({field_id(name), -1, text, {evidence}});
  }

  void add_weights(const WeightComparison& weights) {
    std::map<WeightKind, std::vector<const TensorDifference*>> by_kind;
    for (const TensorDifference& one : weights.differences) by_kind[one.kind].push_back(&one);
    const std::string trial = trial_of_weights();
    for (const auto& [kind, tensors] : by_kind) {
      if (kind == WeightKind::other_format) continue;
      const TensorDifference& first = *tensors.front();
      Cause cause{kind_of(kind).id,
                  first.wrong_side,
                  fmt::format("{} ({}: {})", kind_of(kind).text, first.name, first.text),
                  {}};
      if (kind == WeightKind::e8m0_as_number && first.wrong_side >= 0) {
        cause.text = fmt::format("read e8m0 scales as numbers ({}: {})", first.name, first.text);
      }
      for (size_t i = 1; i < std::min(tensors.size(), kShownTensors); ++i) {
        cause.evidence.push_back(fmt::format("{}: {}", tensors[i]->name, tensors[i]->text));
      }
      if (tensors.size() > kShownTensors) {
        cause.evidence.push_back(fmt::format("and {} parameters more", tensors.size() - kShownTensors));
      }
      cause.evidence.push_back(fmt::format("{} of {} parameters looked at differ so", tensors.size(), weights.tensors));
      if (!trial.empty()) cause.evidence.push_back(trial);
      diagnosis_.causes.push_back(std::move(cause));
    }
  }

  std::string trial_of_weights() const {
    if (!same_precision_ || !walk_.parting) return "";
    Definition changed = definition_of(0);
    take_parameters(changed.weights, sides_[1]->weights(), wanted_names());
    return gives_b(changed) ? "A with B's parameters computes what B computed here, to the bit" : "";
  }

  void add_precision() {
    const model::Profile &a = sides_[0]->profile(), &b = sides_[1]->profile();
    if (a == b) return;
    Cause cause{
        "precision",
        -1,
        fmt::format("configs and parameters agree; the sides round otherwise ({} on A, {} on B)", a.name, b.name),
        {}};
    const auto note = [&](const char* what, bool on_a, bool on_b) {
      if (on_a != on_b) cause.evidence.push_back(fmt::format("{}: on {} only", what, on_a ? "A" : "B"));
    };
    note("activations rounded to bf16", a.round_bf16, b.round_bf16);
    note("e4m3 weights and inputs of linear layers", a.quantise, b.quantise);
    note("e2m1 experts", a.fp4_experts, b.fp4_experts);
    note("KV entries on the e4m3 grid", a.kv_sim, b.kv_sim);
    note("indexer on the e2m1 grid", a.index_sim, b.index_sim);
    for (const SiteRow& row : walk_.sites) {
      if (!is_choice(row.site) || row.differing == 0) continue;
      cause.evidence.push_back(fmt::format("choices flip from layer {} on: {} of {} tokens, {}", row.layer,
                                           row.differing, row.rows, site_text(row.site)));
      break;
    }
    diagnosis_.causes.push_back(std::move(cause));
  }

  // Ids that one side gives no probability.
  void add_vocabulary() {
    const auto absent = [&](size_t s) {
      const Tensor& mask = sides_[s]->absent_V();
      return mask.defined() ? mask.sum().item<int64_t>() : 0;
    };
    if (absent(0) == absent(1)) return;
    diagnosis_.causes.push_back(
        {"ids_without_token",
         -1,
         fmt::format("{} ids have no token on A, {} on B: the softmax runs over other ids", absent(0), absent(1)),
         {}});
  }

  void unexplained() {
    Cause cause{"unexplained", -1, "config and parameters of the place agree; the cause is not known", {}};
    for (size_t s = 0; s < 2; ++s) {
      cause.evidence.push_back(
          fmt::format("{} runs {} and computes what its config and weights say", kSides[s], sides_[s]->path()));
    }
    diagnosis_.causes.push_back(std::move(cause));
  }

  std::array<const Forward*, 2> sides_;
  const Walk& walk_;
  bool same_precision_;
  const Watch& watch_;
  Diagnosis diagnosis_;
};

}  // namespace

std::string place_text(const Parting& parting, const model::Config& config) {
  const SiteDifference& difference = parting.difference;
  std::string layer;
  if (parting.layer < config.num_hidden_layers && parting.site != Site::embedding) {
    layer = fmt::format(" at layer {}", parting.layer);
    const bool routing = parting.site == Site::router_choice || parting.site == Site::router_weight;
    if (routing)
      layer += config.hash_layers[static_cast<size_t>(parting.layer)] ? ", hash-routed" : ", routed by score";
  }
  const std::string what = parting.site ? site_text(*parting.site) : "log-prob";
  if (difference.other_shape) return fmt::format("{} has other rows on one side{}", what, layer);
  return fmt::format("{} differs in {}{}", what, rows_text(difference, parting.site), layer);
}

std::vector<std::string> parameters_of_site(int64_t layer, int64_t num_layers, std::optional<Site> site) {
  if (!site) return {"head.weight"};
  const std::string prefix = layer < num_layers ? fmt::format("layers.{}.", layer) : "";
  std::vector<std::string> names;
  for (const std::string& name : site_parameters().at(*site)) {
    names.push_back(name.front() == 'L' ? prefix + name.substr(1) : name);
  }
  return names;
}

Diagnosis diagnose(const Forward& a, const Forward& b, const Walk& walk, bool same_precision, const Watch& watch) {
  return Doctor(a, b, walk, same_precision, watch).run();
}

}  // namespace compare
