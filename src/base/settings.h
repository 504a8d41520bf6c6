// Settings are plain structs with a visitor. A field's default, range, unit and help text stand once, in the struct, and give the
// command line (--section.key=value), the TOML file, --help, the checks and the settings saved with a run.
//
//   struct SchedulerSettings {
//     int64_t max_batch_tokens = 8192;
//     template <class V> void visit(V&& v) {
//       v("max_batch_tokens", max_batch_tokens, "tokens in one forward pass, prefill and decode together", base::Range{1, 1 << 20});
//     }
//   };
//
// Field types: bool, int64_t, double, std::string, std::vector<std::string>, std::vector<int64_t>, and structs with visit().
#pragma once
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

namespace base {

// Closed interval for numbers.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

// Allowed values of a text.
struct OneOf {
  OneOf(std::initializer_list<std::string> list) : values(list) {}
  std::vector<std::string> values;
};

}  // namespace base
