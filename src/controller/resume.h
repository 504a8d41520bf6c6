// What may differ between a run and its continuation.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "controller/settings.h"

namespace controller {

// One line for each setting that is not as it was saved, "rollout.max_staleness: 0 -> 1 (alters the result)". Error
// {invalid_argument} with these lines when one of them alters the result of the run and allow_changed is false.
std::vector<std::string> accept_changes(const RunSettings& now, const base::Json& saved, bool allow_changed);

}  // namespace controller
