// Which experts each token of a sequence went to, kept for routing replay (the actor computes with the same ones).
// Layout: [position][layer][experts per token], ascending ids within a layer.
#pragma once
#include <cstdint>
#include <vector>

#include "model/pass.h"

namespace rollout {

// Writes the choices of a span's tokens at their positions; `experts` grows to the span's end.
void record_experts(const model::Choices& choices, const model::Span& span, std::vector<uint16_t>& experts);

// The first `positions` positions of one record become those of another: what a fork of the cache takes over.
void share_experts(const std::vector<uint16_t>& from, int64_t positions, int64_t per_position,
                   std::vector<uint16_t>& to);

}  // namespace rollout
