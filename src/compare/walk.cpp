// Layer by layer, site by site.
#include "compare/walk.h"

#include <fmt/format.h>

namespace compare {
namespace {

using model::Site;

constexpr std::array<const char*, 2> kSides = {"A", "B"};

class Walker {
 public:
  Walker(Forward& a, Forward& b, const Ids& ids, const WalkOptions& options)
      : sides_{&a, &b}, options_(options), num_layers_(a.weights().config.num_hidden_layers) {
    walk_.ids = ids;
  }

  Walk run(const Watch& watch) {
    std::array<Tensor, 2> streams = {sides_[0]->start(walk_.ids), sides_[1]->start(walk_.ids)};
    note(0, Site::embedding, streams[0], streams[1]);
    walk_.streams.push_back(compare_rows(Site::embedding, streams[0], streams[1]).relative);
    for (int64_t layer = 0; layer < num_layers_; ++layer) {
      watch.update("layer by layer", layer, num_layers_);
      const std::array<LayerRecord, 2> records = {sides_[0]->layer(layer, streams[0]),
                                                  sides_[1]->layer(layer, streams[1])};
      const bool parts_here = note_layer(records);
      for (size_t s = 0; s < 2; ++s) {
        if (parts_here || !options_.same_precision) hold_against_definition(s, records[s]);
        streams[s] = records[s].output_TMD();
      }
    }
    finish(streams);
    return std::move(walk_);
  }

 private:
  // Whether a difference at this place counts as parting.
  bool parts(int64_t layer, Site site, const SiteDifference& difference) const {
    if (difference.other_shape || options_.tolerance == 0 || !is_choice(site)) {
      return difference.other_shape || difference.beyond > 0;
    }
    const bool by_table = site == Site::router_choice && layer < num_layers_ &&
                          sides_[0]->weights().config.hash_layers[static_cast<size_t>(layer)];
    return by_table && difference.differing > 0;
  }

  // Returns whether it is the parting.
  bool note(int64_t layer, Site site, const Tensor& a, const Tensor& b) {
    SiteDifference difference = compare_rows(site, a, b, options_.tolerance);
    walk_.sites.push_back(
        {layer, site, difference.rows, difference.differing, difference.worst_relative, difference.other_shape});
    if (walk_.parting || !parts(layer, site, difference)) return false;
    walk_.parting = Parting{layer, site, std::move(difference), {}};
    return true;
  }

  bool note_layer(const std::array<LayerRecord, 2>& records) {
    bool parts_here = false;
    for (const Site site : sites_of(records[0], records[1])) {
      if (!note(records[0].layer, site, site_value(records[0], site), site_value(records[1], site))) continue;
      walk_.parting->records = records;
      parts_here = true;
    }
    walk_.streams.push_back(compare_rows(Site::ffn_hc_post, records[0].output_TMD(), records[1].output_TMD()).relative);
    return parts_here;
  }

  void hold_against_definition(size_t side, const LayerRecord& record) {
    std::optional<Departure>& departure = walk_.departures[side];
    if (departure) return;
    const Forward& forward = *sides_[side];
    const auto count = static_cast<int64_t>(walk_.ids.size());
    const LayerRecord wanted = run_layer(Definition::of(forward.weights(), forward.profile(), count), walk_.ids,
                                         record.layer, record.input_TMD);
    for (const Site site : sites_of(record, wanted)) {
      SiteDifference difference = compare_rows(site, site_value(record, site), site_value(wanted, site));
      if (!difference.any()) continue;
      departure = Departure{record.layer, site, std::move(difference), record};
      return;
    }
  }

  void finish(const std::array<Tensor, 2>& streams) {
    std::array<Tensor, 2> hidden;
    for (size_t s = 0; s < 2; ++s) {
      hidden[s] = sides_[s]->final_hidden(streams[s]);
      walk_.log_probs[s] = sides_[s]->log_probs(hidden[s], options_.temperature);
    }
    note(num_layers_, Site::final_hidden, hidden[0], hidden[1]);
    if (walk_.parting || options_.tolerance > 0 || walk_.log_probs[0] == walk_.log_probs[1]) return;
    SiteDifference difference;
    difference.rows = static_cast<int64_t>(walk_.ids.size());
    for (size_t t = 0; t < walk_.ids.size(); ++t) {
      if (walk_.log_probs[0][t] == walk_.log_probs[1][t]) continue;
      if (difference.differing++ == 0) difference.first = static_cast<int64_t>(t);
    }
    difference.worst = difference.first_beyond = difference.first;
    difference.beyond = difference.differing;
    walk_.parting = Parting{num_layers_, std::nullopt, std::move(difference), {}};
  }

  std::array<Forward*, 2> sides_;
  WalkOptions options_;
  int64_t num_layers_;
  Walk walk_;
};

}  // namespace

std::optional<std::string> why_not_side_by_side(const model::Config& a, const model::Config& b) {
  const auto differ = [](const char* field, int64_t left, int64_t right) {
    return fmt::format("{} is {} on {} and {} on {}", field, left, kSides[0], right, kSides[1]);
  };
  if (a.num_hidden_layers != b.num_hidden_layers)
    return differ("num_hidden_layers", a.num_hidden_layers, b.num_hidden_layers);
  if (a.hidden_size != b.hidden_size) return differ("hidden_size", a.hidden_size, b.hidden_size);
  if (a.hc_mult != b.hc_mult) return differ("hc_mult", a.hc_mult, b.hc_mult);
  if (a.vocab_size != b.vocab_size) return differ("vocab_size", a.vocab_size, b.vocab_size);
  return std::nullopt;
}

Walk walk(Forward& a, Forward& b, const Ids& ids, const WalkOptions& options, const Watch& watch) {
  CHECK(!why_not_side_by_side(a.weights().config, b.weights().config));
  return Walker(a, b, ids, options).run(watch);
}

}  // namespace compare
