// What a step reports beside the actor's own figures: rewards of all collected groups, sampling, staleness. Names:
// metrics/names.h.
#pragma once
#include <cstdint>

#include "controller/collector.h"
#include "metrics/step_metrics.h"

namespace controller {

// trained_version: of the weights that the step started from; staleness is measured from the versions in the samples.
metrics::StepMetrics step_figures(int64_t step, const Collected& collected, int64_t trained_version);

}  // namespace controller
