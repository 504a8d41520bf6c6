// Matrix products over weights in a packed run layout. Torch-free; AVX2, AVX-512 or NEON chosen at run time.
//
//   out[m, n] = sum over k of in[m, k] * w[n, k]
//
// Order of the sum (decisions 5, 21), for every element whatever M, tile and thread: one chain of fused multiply-adds
// over ascending k for f32 and bf16 weights; for e4m3 such a chain per 128 k, for e2m1 per 32 k, each from zero, times
// the block's scale, added to the sum in order of the blocks. Inputs of quantised products are values that already lie
// on the e4m3 grid (kernels/simulate.h); scales being powers of two, this is the contract of spec 6.7 exactly.
//
// Letters: M rows, N outputs, K inputs, E matrices of a stack.
#pragma once
#include <cstdint>
#include <span>

namespace kernels::cpu {

enum class WeightFormat { f32, bf16, e4m3, e2m1 };

// One matrix in run layout: panels of 16 outputs, inside a panel by ascending k (the last panel padded with zeros).
// Quantised formats also have scales, f32: of e4m3 [panels, ceil(K / 128)], of e2m1 [panels, ceil(K / 32), 16]. How
// codes lie inside a panel is pack.h's business.
struct PackedMatrix {
  WeightFormat format = WeightFormat::f32;
  int64_t n = 0, k = 0;
  const void* panels = nullptr;
  const float* scales = nullptr;
};

int64_t panel_bytes(WeightFormat format, int64_t n, int64_t k);
int64_t num_scales(WeightFormat format, int64_t n, int64_t k);  // 0 for f32 and bf16

// element (n, k) of the source at n * stride_n + k * stride_k: a transposed source packs the transposed matrix.
struct Strides {
  int64_t n = 0, k = 1;
};
void pack_f32(const float* source, int64_t n, int64_t k, Strides strides, float* panels);
// Values that are bf16 already, given as f32; others are refused by a CHECK in debug tests only.
void pack_bf16(const float* source, int64_t n, int64_t k, Strides strides, uint16_t* panels);
// codes [n, k] and scales f32 [ceil(n / 128), ceil(k / 128)] as stored (tensor/formats/block_scale.h). A NaN code makes
// its panel's 128 k NaN.
void pack_e4m3(const uint8_t* codes, const float* block_scales, int64_t n, int64_t k, uint8_t* panels, float* scales);
// codes [n, k / 2], low nibble = even k, and scales f32 [n, ceil(k / 32)].
void pack_e2m1(const uint8_t* codes, const float* block_scales, int64_t n, int64_t k, uint8_t* panels, float* scales);

// values f32 [n, k]: code times scale, rounded once (exact for powers of two).
void unpack(const PackedMatrix& weight, float* values);

// Row r of the input is input + (input_rows ? input_rows[r] : r) * input_stride; of the output likewise.
struct Product {
  const float* input = nullptr;
  int64_t input_stride = 0;
  const int32_t* input_rows = nullptr;
  float* output = nullptr;
  int64_t output_stride = 0;
  const int32_t* output_rows = nullptr;
  int64_t m = 0;
  PackedMatrix weight;
  bool round_bf16 = false;  // each result, to nearest even
};

// On the threads of base/parallel.h. Several products (experts, output groups) share one round of work; products of one
// call must not write the same element.
void multiply(std::span<const Product> products);
inline void multiply(const Product& product) { multiply(std::span(&product, 1)); }

// Gradient of a weight: out[n, k] (+)= sum over ascending m of dy[row(m), n] * x[row(m), k], one chain of fused
// multiply-adds that starts from `out` when it accumulates, else from zero. Output rows are k long, dense.
struct OuterSum {
  const float* dy = nullptr;
  int64_t dy_stride = 0;
  const int32_t* dy_rows = nullptr;
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;
  int64_t m = 0, n = 0, k = 0;
  float* out = nullptr;
  bool accumulate = false;
};
void add_outer(std::span<const OuterSum> sums);
inline void add_outer(const OuterSum& sum) { add_outer(std::span(&sum, 1)); }

}  // namespace kernels::cpu
