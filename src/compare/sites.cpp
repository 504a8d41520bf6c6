// Names of the sites, and distances of their rows.
#include "compare/sites.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace compare {
namespace {

using model::Site;

struct SiteName {
  Site site;
  const char *key, *text;
};
constexpr SiteName kNames[] = {
    {Site::embedding, "embedding", "embedding"},
    {Site::attn_hc_pre, "attn_hc_pre", "hc_pre (attention)"},
    {Site::query, "query", "query"},
    {Site::window_kv, "window_kv", "window key"},
    {Site::compressor, "compressor", "compressor"},
    {Site::index_compressor, "index_compressor", "compressor of the indexer"},
    {Site::indexer_choice, "indexer_choice", "indexer choice"},
    {Site::attention, "attention", "attention"},
    {Site::attn_output, "attn_output", "output of attention"},
    {Site::attn_hc_post, "attn_hc_post", "hc_post (attention)"},
    {Site::ffn_hc_pre, "ffn_hc_pre", "hc_pre (experts)"},
    {Site::router_choice, "router_choice", "router choice"},
    {Site::router_weight, "router_weight", "router weight"},
    {Site::shared_output, "shared_output", "shared expert"},
    {Site::expert_output, "expert_output", "expert output"},
    {Site::ffn_hc_post, "ffn_hc_post", "hc_post (experts)"},
    {Site::final_hidden, "final_hidden", "final hidden"},
};

const SiteName& name_of(Site site) {
  const auto* const at =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const SiteName& n) { return n.site == site; });
  CHECK(at != std::end(kNames));
  return *at;
}

struct RowGap {
  bool differs = false;
  double relative = 0;
};

RowGap value_gap(const float* a, const float* b, int64_t count) {
  RowGap row;
  double gap = 0, size_a = 0, size_b = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (a[i] == b[i]) {
      size_a += double{a[i]} * a[i];
      size_b += double{b[i]} * b[i];
      continue;
    }
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    row.differs = true;
    gap += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size_a += double{a[i]} * a[i];
    size_b += double{b[i]} * b[i];
  }
  if (!row.differs) return row;
  row.relative = std::sqrt(gap / std::max(size_a, size_b));
  if (!std::isfinite(row.relative)) row.relative = std::numeric_limits<double>::infinity();
  return row;
}

// Ids of -1 are none.
RowGap choice_gap(const int32_t* a, int64_t count_a, const int32_t* b, int64_t count_b) {
  std::vector<int32_t> left, right, both;
  std::copy_if(a, a + count_a, std::back_inserter(left), [](int32_t id) { return id >= 0; });
  std::copy_if(b, b + count_b, std::back_inserter(right), [](int32_t id) { return id >= 0; });
  std::sort(left.begin(), left.end());
  std::sort(right.begin(), right.end());
  if (left == right) return {};
  std::set_intersection(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
  const auto most = static_cast<double>(std::max(left.size(), right.size()));
  return {true, (most - static_cast<double>(both.size())) / most};
}

void add_row(SiteDifference& difference, int64_t row, const RowGap& gap, double tolerance) {
  difference.relative.push_back(static_cast<float>(gap.relative));
  if (!gap.differs) return;
  if (difference.differing++ == 0) difference.first = row;
  if (difference.worst < 0 || gap.relative > difference.worst_relative) {
    difference.worst = row;
    difference.worst_relative = gap.relative;
  }
  if (tolerance > 0 && gap.relative <= tolerance) return;
  if (difference.beyond++ == 0) difference.first_beyond = row;
}

Tensor on_host(const Tensor& value, at::ScalarType dtype) {
  return value.detach().to(at::kCPU, dtype).reshape({value.size(0), -1}).contiguous();
}

}  // namespace

std::string site_key(Site site) { return name_of(site).key; }
std::string site_text(Site site) { return name_of(site).text; }
bool is_choice(Site site) { return site == Site::indexer_choice || site == Site::router_choice; }

SiteDifference compare_rows(Site site, const Tensor& a, const Tensor& b, double tolerance) {
  SiteDifference difference;
  const auto empty = [](const Tensor& t) { return !t.defined() || t.numel() == 0; };
  if (empty(a) && empty(b)) return difference;
  const bool choice = is_choice(site);
  if (empty(a) || empty(b) || a.size(0) != b.size(0) || (!choice && a.numel() != b.numel())) {
    difference.other_shape = true;
    return difference;
  }
  difference.rows = a.size(0);
  const at::ScalarType dtype = choice ? at::kInt : at::kFloat;
  const Tensor x = on_host(a, dtype), y = on_host(b, dtype);
  for (int64_t row = 0; row < difference.rows; ++row) {
    const RowGap gap = choice ? choice_gap(x.const_data_ptr<int32_t>() + row * x.size(1), x.size(1),
                                           y.const_data_ptr<int32_t>() + row * y.size(1), y.size(1))
                              : value_gap(x.const_data_ptr<float>() + row * x.size(1),
                                          y.const_data_ptr<float>() + row * x.size(1), x.size(1));
    add_row(difference, row, gap, tolerance);
  }
  return difference;
}

Tensor site_value(const LayerRecord& record, Site site) {
  const auto at = record.sites.find(site);
  return at == record.sites.end() ? Tensor() : at->second;
}

std::vector<Site> sites_of(const LayerRecord& a, const LayerRecord& b) {
  std::vector<Site> sites;
  for (const SiteName& name : kNames) {
    if (a.sites.contains(name.site) || b.sites.contains(name.site)) sites.push_back(name.site);
  }
  return sites;
}

}  // namespace compare
