// Hyper-connections: gates, Sinkhorn and the collection of streams in one pass (hc_pre), their mixing (hc_post).
//
// Letters   T tokens, M streams (1 to 8), D dim, X rows of the mix: (2 + M) * M; of the head M
// In, out   cpu::HcPre, HcPreResult, HcPost and Sinkhorn (kernels/cpu/hyper_connection.h), every pointer to device
//           memory. Of HcPre, fn is not read; instead raw_TX f32 [T, X] = fn . x comes from a matrix product. Of
//           HcPreResult, raw and rinv are not written; post and comb are null for the head.
// Numerics  that of the CPU kernels from raw on, to the bit: sums over streams, rows and columns ascending; a
//           normalisation multiplies by the reciprocal of the sum. raw itself differs by the product's order of sums.
// Empty     no tokens: nothing is done
// Errors    Error{internal}: sizes; Error{unavailable}: the GPU refuses the kernel
// Gradient  none here; the op differentiates the reference
// Source    spec 3, decisions 5, 25
#pragma once
#include "kernels/cpu/hyper_connection.h"
#include "kernels/gpu/launch.h"

namespace kernels::gpu {

void hc_pre(const cpu::HcPre& pre, const float* raw_TX, const cpu::HcPreResult& result, Queue queue);
void hc_post(const cpu::HcPost& post, bool round_bf16, float* result_TMD, Queue queue);
void sinkhorn(const cpu::Sinkhorn& step, float* comb_TMM, Queue queue);

}  // namespace kernels::gpu
