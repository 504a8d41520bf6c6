// The norm of rows with what follows it on queries and keys (rotary embedding, simulated storage), and the turn alone.
//
// In, out   cpu::NormRows and cpu::TurnedRows (kernels/cpu/rms_norm.h, rope.h) with every pointer to device memory,
//           the positions too; y [rows, k] is not x (rotate: it may be)
// Numerics  that of the CPU kernels, to the bit: sums of 16 chains, then halves; one rounding per operation
// Empty     no rows: nothing is done
// Errors    Error{internal}: sizes; Error{unavailable}: the GPU refuses the kernel. Positions are not checked.
// Gradient  none here; the op differentiates the reference
// Source    spec 2, 4.2 to 4.4, 4.8, decisions 16
#pragma once
#include "kernels/cpu/rms_norm.h"
#include "kernels/gpu/launch.h"

namespace kernels::gpu {

void rms_norm(const cpu::NormRows& rows, float* y, Queue queue);
void rotate(const cpu::TurnedRows& rows, Queue queue);

}  // namespace kernels::gpu
