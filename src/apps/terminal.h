// Where subcommands whose result goes to standard output show their progress.
#pragma once
#include "report/console.h"

namespace apps {

report::Terminal standard_error();

}  // namespace apps
