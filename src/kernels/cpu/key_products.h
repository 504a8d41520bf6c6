// A query's heads against a list of key rows, and back: what attention and the indexer spend their time on. Torch-free,
// on the caller's thread. Each sum is one chain of fused multiply-adds in the order that is named, whatever the number
// of keys, the heads beside it and the instruction set.
//
// Letters: H heads, P heads rounded up to a multiple of 8, K head_dim, N keys.
#pragma once
#include <cstdint>

namespace kernels::cpu {

inline int64_t padded_heads(int64_t num_heads) { return (num_heads + 7) / 8 * 8; }

// rows [H, K] -> out [K, P]; the heads that pad are zero.
void transpose_heads(const float* rows_HK, int64_t num_heads, int64_t dim, float* out_KP);

// out[n, h] = scale * sum over ascending k of query[k, h] * keys[n][k].
struct KeyDots {
  const float* query_KP = nullptr;
  const float* const* keys = nullptr;
  int64_t num_keys = 0, num_heads = 0, dim = 0;
  float scale = 1;
  float* out = nullptr;  // row n at n * out_stride; heads up to P may be written
  int64_t out_stride = 0;
};
void key_dots(const KeyDots& dots);

// out[h, k] = sum over ascending n of weight[n, h] * keys[n][k].
struct KeyMix {
  const float* weight = nullptr;  // row n at n * weight_stride
  int64_t weight_stride = 0;
  const float* const* keys = nullptr;
  int64_t num_keys = 0, num_heads = 0, dim = 0;
  float* out_HK = nullptr;
};
void key_mix(const KeyMix& mix);

// rows[n][k] += over ascending h: dscore[n, h] * query[h, k], then weight[n, h] * dout[h, k].
struct KeyGradients {
  const float *dscore = nullptr, *weight = nullptr;  // row n at n * stride
  int64_t stride = 0;
  const float *query_HK = nullptr, *dout_HK = nullptr;
  float* const* rows = nullptr;
  int64_t num_keys = 0, num_heads = 0, dim = 0;
};
void add_key_gradients(const KeyGradients& gradients);

}  // namespace kernels::cpu
