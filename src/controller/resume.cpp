// Comparison of settings with those saved.
#include "controller/resume.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace controller {
namespace {

std::string text_of(const base::Json& value) { return value.is_null() ? "(not there)" : base::to_line(value); }

}  // namespace

std::vector<std::string> accept_changes(const RunSettings& now, const base::Json& saved, bool allow_changed) {
  RunSettings settings = now;
  base::Fields fields = base::fields_of(settings);
  std::vector<std::string> lines;
  bool alters = false;
  for (const base::SettingChange& change : base::setting_changes(fields, saved)) {
    const bool harmful = change.resume == base::Resume::alters;
    alters = alters || harmful;
    lines.push_back(fmt::format("{}: {} -> {}{}", change.name, text_of(change.before), text_of(change.after),
                                harmful ? " (alters the result)" : ""));
  }
  if (alters && !allow_changed) {
    base::fail(base::Code::invalid_argument,
               "these settings are not as the run was started with:\n  {}\nPut back those that alter the result, or "
               "accept them with --allow_changed: the run then ends in other weights than it would have",
               fmt::join(lines, "\n  "));
  }
  return lines;
}

}  // namespace controller
