// Which experts a token goes to, and the weights of the chosen.
//
// In, out   cpu::RouterInput (kernels/cpu/router.h) with device pointers; experts E at most kMostExperts, per token
//           A at most cpu::kMostChosen; bias f32 [E], expert int32 [T, A] ascending, weight f32 [T, A]
// Ties      higher score + bias first, NaN above all, then the lower id
// Numerics  that of the CPU kernels, to the bit
// Empty     no tokens: nothing is done
// Errors    Error{internal}: sizes; Error{unavailable}: the GPU refuses the kernel. An id outside [0, E) has weight
//           NaN.
// Gradient  of the weights: none here; the op differentiates the reference
// Source    spec 5.1, decisions 6
#pragma once
#include "kernels/cpu/router.h"
#include "kernels/gpu/launch.h"

namespace kernels::gpu {

inline constexpr int64_t kMostExperts = 2048;

void best_experts(const cpu::RouterInput& input, const float* bias, int32_t* expert, Queue queue);
void expert_weights(const cpu::RouterInput& input, const int32_t* expert, float* weight, Queue queue);

}  // namespace kernels::gpu
