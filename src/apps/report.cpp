// furlong report: how a run went, as text.
#include "report/run_report.h"

#include <filesystem>

#include "apps/commands.h"
#include "apps/standard_io.h"
#include "base/files.h"
#include "controller/settings.h"

namespace apps {
namespace {

const Usage kUsage = {
    "report", "RUN",
    "Prints how a run went: changed settings, trend of the reward, pass@k, gap between rollout and actor, time per "
    "phase, and the best, worst and "
    "most changed samples. RUN is the folder of a run that has ended, was killed, or is still going on.",
    1, 1};

std::string as_text(const base::Json& value) {
  const bool plain = value.is_string() && !value.get_ref<const std::string&>().empty();
  return plain ? value.get<std::string>() : base::to_line(value);
}

std::vector<report::ChangedSetting> changed_settings(const std::filesystem::path& run) {
  std::vector<report::ChangedSetting> changed;
  const std::filesystem::path path = run / "settings.json";
  if (!std::filesystem::exists(path)) return changed;  // killed before its first write; the report says what there is
  controller::RunSettings defaults;
  base::Fields fields = base::fields_of(defaults);
  for (const base::SettingChange& change : base::setting_changes(fields, base::read_json(path))) {
    changed.push_back({change.name, as_text(change.before), as_text(change.after)});
  }
  return changed;
}

}  // namespace

int run_report(const Call& call) {
  base::Fields none;
  const CommandLine line = read_command_line(none, kUsage, call.arguments);
  if (line.help) return print_help(none, kUsage);
  apply_overrides(none, line);
  const std::filesystem::path run = line.positional.front();
  write_text(report::run_report(run, changed_settings(run)));
  flush_output();
  return 0;
}

}  // namespace apps
