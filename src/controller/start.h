// From settings to the first step: memory plan, weights to start from, the actor of a phase.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "controller/inputs.h"
#include "controller/memory.h"
#include "controller/run.h"

namespace controller {

// What the run will hold at its fullest. Evaluation alone has no actor but its weights.
std::vector<MemoryPart> plan_run(const RunSettings& settings, const Inputs& inputs, Purpose purpose);

// The weights of model.path, or random ones for model.config that follow from run.seed.
model::Weights starting_weights(const RunSettings& settings, const model::Config& config);

// The actor of the phase that the run stands in: from a checkpoint, or from the starting weights.
std::unique_ptr<actor::Actor> make_actor(const RunSettings& settings, const Inputs& inputs, Phase phase,
                                         const std::optional<Saved>& saved);

// The actor of the learning phase, from the weights that the warm-up ended with: a fresh optimizer, and where the loss
// needs one a reference policy.
std::unique_ptr<actor::Actor> begin_learning(const RunSettings& settings, const Inputs& inputs,
                                             std::unique_ptr<actor::Actor> warmed_up);

}  // namespace controller
