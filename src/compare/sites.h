// Values at the sites of a layer, compared row by row.
#pragma once
#include <string>
#include <vector>

#include "compare/forward.h"

namespace compare {

std::string site_key(model::Site site);   // "attn_hc_post", for JSON
std::string site_text(model::Site site);  // "hc_post (attention)"
bool is_choice(model::Site site);         // ids that were chosen instead of values

struct SiteDifference {
  int64_t rows = 0, differing = 0;  // differing: in any number; two NaN are equal, 0 and -0 too
  int64_t first = -1, worst = -1;   // rows; -1: none differs
  double worst_relative = 0;
  int64_t beyond = 0, first_beyond = -1;  // rows whose relative difference is above the tolerance; 0: any that differs
  bool other_shape = false;               // one side has no such value, or of another shape: nothing else is set
  // By row: |a - b| / max(|a|, |b|) in the 2-norm (infinity with a NaN); of choices the share of ids in one side only.
  std::vector<float> relative;

  bool any() const { return other_shape || differing > 0; }
};

// a and b with the same number of rows, or an undefined tensor for a side without the site.
SiteDifference compare_rows(model::Site site, const Tensor& a, const Tensor& b, double tolerance = 0);

// The value of a site, undefined where there is none.
Tensor site_value(const LayerRecord& record, model::Site site);

// The sites of either record, in order.
std::vector<model::Site> sites_of(const LayerRecord& a, const LayerRecord& b);

}  // namespace compare
