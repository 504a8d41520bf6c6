// Hyper-connections over raw f32: mixing, gates, Sinkhorn and their gradients (spec 3). Torch-free.
//
// Orders (decisions 5, 25). Sums over a row: kernels/cpu/row_inl.h. The mix fn . x is a product of
// kernels/cpu/matmul.h. Sums over streams and over the rows and columns of comb: ascending, by fused multiply-add where
// there is a product; a normalisation multiplies by the reciprocal of the sum. Gradients of weights: one chain over
// ascending tokens. No token's result depends on the tokens around it.
//
// Letters: T tokens, M streams (1 to 8), D dim, X = (2 + M) * M rows of fn, base and mix; of the head X = M.
#pragma once
#include <cstdint>

#include "kernels/cpu/matmul.h"

namespace kernels::cpu {

inline constexpr int64_t kMaxStreams = 8;

struct HcPre {
  const float* streams = nullptr;  // [T, M, D]
  int64_t tokens = 0, num_streams = 0, dim = 0;
  PackedMatrix fn;               // [X, M * D]
  const float* base = nullptr;   // [X]
  const float* scale = nullptr;  // [3]; of the head [1]
  bool head = false;             // neither post nor comb
  int64_t sinkhorn_iters = 0;    // >= 1, without head
  float hc_eps = 0, norm_eps = 0;
};

struct HcPreResult {
  float* input = nullptr;  // [T, D]
  bool round_bf16 = false;
  float* post = nullptr;  // [T, M]
  float* comb = nullptr;  // [T, M, M]
  float* raw = nullptr;   // [T, X] fn . x, for the gradient; or null
  float* rinv = nullptr;  // [T] 1 / rms(x), for the gradient; or null
};
void hc_pre(const HcPre& pre, const HcPreResult& result);

struct HcPreGradient {
  const float* dinput = nullptr;  // [T, D]
  const float* dpost = nullptr;   // [T, M], or null for zeros
  const float* dcomb = nullptr;   // [T, M, M], or null for zeros
  const float* raw = nullptr;     // as hc_pre left them
  const float* rinv = nullptr;
  PackedMatrix fn_transposed;  // [M * D, X]
  float* dstreams = nullptr;   // [T, M, D]: fn^T part, then dinput's, then the norm's
  float* dfn = nullptr;        // [X, M * D]; the last three may be null, all together
  float* dbase = nullptr;      // [X]
  float* dscale = nullptr;     // as scale
};
void hc_pre_backward(const HcPre& pre, const HcPreGradient& gradient);

struct HcPost {
  const float* output = nullptr;   // [T, D]
  const float* streams = nullptr;  // [T, M, D]
  const float* post = nullptr;     // [T, M]
  const float* comb = nullptr;     // [T, M, M]
  int64_t tokens = 0, num_streams = 0, dim = 0;
};
void hc_post(const HcPost& post, bool round_bf16, float* result);  // [T, M, D]

struct HcPostGradient {
  const float* dresult = nullptr;  // [T, M, D]
  float* doutput = nullptr;        // [T, D]
  float* dstreams = nullptr;       // [T, M, D]
  float* dpost = nullptr;          // [T, M]
  float* dcomb = nullptr;          // [T, M, M]
};
void hc_post_backward(const HcPost& post, const HcPostGradient& gradient);

struct Sinkhorn {
  const float* logits = nullptr;  // [T, M, M]
  int64_t tokens = 0, num_streams = 0, iters = 0;
  float eps = 0;
};
void sinkhorn(const Sinkhorn& step, float* comb);
void sinkhorn_backward(const Sinkhorn& step, const float* dcomb, float* dlogits);

}  // namespace kernels::cpu
