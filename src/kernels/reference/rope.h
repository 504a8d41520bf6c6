// The definitions of kernels/rope.h by tensor operations: any device, f32 and f64, differentiable.
#pragma once
#include "kernels/rope.h"

namespace kernels::reference {

Tensor query_heads(const Tensor& x, int64_t num_heads, double eps, const Layout& layout, const RopeTable& table,
                   Rounding rounding);
Tensor kv_rows(const Tensor& x, const Tensor& norm_weight, const KvOptions& options, const Layout& layout,
               const RopeTable& table);
Tensor rotate(const Tensor& x, const Layout& layout, const RopeTable& table, bool inverse, Rounding rounding);

}  // namespace kernels::reference
