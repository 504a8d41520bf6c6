// Where a result is rounded before it is stored (still as f32): a profile's choice, passed to every kernel.
#pragma once

namespace kernels {

enum class Rounding { none, bf16 };  // bf16: to the nearest bf16 value, ties to even; NaN stays NaN

}  // namespace kernels
