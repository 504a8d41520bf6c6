// The supervised phase before reinforcement learning: the policy learns demonstrations, with an optimizer of its own.
#pragma once
#include <vector>

#include "controller/epoch_order.h"
#include "controller/run.h"

namespace controller {

// The actor's settings during the warm-up: its optimizer, no reference policy.
actor::ActorSettings warmup_actor(const RunSettings& settings);

// Demonstrations of one update: rows in the order of the data, epoch after epoch. step counts from 0.
std::vector<actor::SftExample> warmup_batch(const std::vector<data::Demonstration>& rows, EpochOrder& order,
                                            int64_t batch_size, int64_t step);

// Goes on from run.progress to the end of the phase, with checkpoints. False: stopped; the state is saved.
bool warm_up(Run& run, actor::Actor& actor);

}  // namespace controller
