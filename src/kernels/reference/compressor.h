// The definition of kernels/compressor.h by tensor operations: any device, f32 and f64, differentiable.
#pragma once
#include "kernels/compressor.h"

namespace kernels::reference {

Tensor pool_entries(const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape, const Tensor& norm_weight,
                    const CompressorOptions& options, const Layout& layout, const EntryLayout& entries,
                    const RopeTable& table, CompressorState* state);

}  // namespace kernels::reference
