// The definitions of kernels/attention.h by tensor operations: any device, f32 and f64, differentiable.
#pragma once
#include "kernels/attention.h"

namespace kernels::reference {

Tensor attend(const Tensor& query_THK, const AttentionKeys& keys, const Tensor& sink_H, double scale,
              const Layout& layout, Rounding rounding);

void keep_window(const Tensor& kv_TK, const Layout& layout, Tensor& ring_SXK);

}  // namespace kernels::reference
