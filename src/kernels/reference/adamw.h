// The definition of kernels/adamw.h by plain tensor operations: any device, f32 and f64. On a CPU in f32 it gives the
// bits of the kernel.
#pragma once
#include "kernels/adamw.h"

namespace kernels::reference {

void adamw(Tensor& master, Tensor& m, Tensor& v, const Tensor& grad, const AdamwStep& step);

// Any floating tensor. Waits for the device.
double sum_of_squares(const Tensor& values);

}  // namespace kernels::reference
