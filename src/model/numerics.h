// The rounding points of a precision profile, one function for each kind (decisions 1, 2, 16 to 25).
#pragma once
#include "model/profile.h"
#include "tensor/round.h"
#include "tensor/tensor.h"

namespace model {

// To bf16 where the profile rounds.
inline tensor::Tensor rounded(const Profile& profile, const tensor::Tensor& values) {
  return profile.round_bf16 ? tensor::round_bf16(values) : values;
}

// What a quantised linear reads: groups of 128 on the e4m3 grid (profile fp8), else the values. Shared by all linears
// of one input.
inline tensor::Tensor linear_input(const Profile& profile, const tensor::Tensor& values) {
  return profile.quantise ? tensor::simulate_groups_st(values, 128, tensor::BlockFormat::e4m3) : values;
}

// y = W x, rounded. x [.., K] (through linear_input where W is quantised), W [N, K].
inline tensor::Tensor project(const Profile& profile, const tensor::Tensor& input, const tensor::Tensor& weight) {
  return rounded(profile, at::linear(input, weight));
}

// KV entries on the grid on which the engine stores them: the dims before the rope dims, groups of 64 (spec 4.3).
tensor::Tensor kv_entry(const Profile& profile, const tensor::Tensor& values, int64_t rope_dim);

// Indexer q and k: Hadamard transform, then e2m1 in groups of 32 (spec 4.6, decisions 18). Without gradient.
tensor::Tensor index_entry(const Profile& profile, const tensor::Tensor& values);

// RMSNorm over the last dim, f32 inside, one rounding at the end. weight undefined: none. (spec 2)
tensor::Tensor rms_norm(const Profile& profile, const tensor::Tensor& values, const tensor::Tensor& weight, double eps);

// Rows of a matrix: out[.., :] = rows[index[..], :]. The gradient is summed in index order (deterministic).
inline tensor::Tensor gather_rows(const tensor::Tensor& rows, const tensor::Tensor& index) {
  return at::embedding(rows, index);
}

}  // namespace model
