// What a precision profile means for the kernels (decisions 1, 2, 16 to 25).
#pragma once
#include "kernels/linear.h"
#include "kernels/simulate.h"
#include "model/profile.h"

namespace model {

inline kernels::Rounding rounding(const Profile& profile) {
  return profile.round_bf16 ? kernels::Rounding::bf16 : kernels::Rounding::none;
}

// What a quantised linear reads: groups of 128 on the e4m3 grid (profile fp8), else the values. Shared by all linears
// of one input.
inline tensor::Tensor linear_input(const Profile& profile, const tensor::Tensor& values) {
  return profile.quantise ? kernels::simulate_groups(values, 128, tensor::BlockFormat::e4m3) : values;
}

// y = W x, rounded. x [.., K] (through linear_input where W is quantised), W [N, K].
inline tensor::Tensor project(const Profile& profile, const tensor::Tensor& input, const kernels::Matrix& weight) {
  return kernels::linear(input, weight, rounding(profile));
}

}  // namespace model
