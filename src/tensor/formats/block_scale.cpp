// Block scaling composed of tensor operations: the definition, on any device.
#include "tensor/formats/block_scale.h"

#include <algorithm>

#include "tensor/formats/e2m1.h"
#include "tensor/formats/e4m3.h"
#include "tensor/formats/ue8m0.h"
#include "tensor/text.h"

namespace tensor {
namespace {

using base::Code;
using base::fail;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void check_matrix(const std::vector<int64_t>& shape, BlockFormat format) {
  if (shape.size() < 2) fail(Code::invalid_argument, "block scales: {} is no matrix", shape_text(shape));
  if (format == BlockFormat::e2m1 && shape.back() % 2 != 0) {
    fail(Code::invalid_argument, "e2m1: {} has an odd number of columns, which can't be stored two per byte",
         shape_text(shape));
  }
}

// scale_byte of kernels/cpu/scale_rule.h; 255 where amax is not finite.
Tensor scale_bytes(const Tensor& amax, BlockFormat format) {
  const kernels::cpu::ScaleRule rule = kernels::cpu::scale_rule(format);
  const Tensor bits = amax.contiguous().view(at::kInt);
  const Tensor exponent = at::bitwise_right_shift(bits, 23);
  const Tensor above = bits.bitwise_and(0x7fffff) > rule.mantissa;
  return (exponent - rule.exponent + above).clamp_min(0).masked_fill_(exponent == 255, 255).to(at::kByte);
}

// [..., R, C] -> [..., R', r, C', c], zeros beyond the edges.
Tensor to_blocks(const Tensor& matrix, Block block) {
  const int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  const int64_t more_rows = ceil_div(rows, block.rows) * block.rows - rows;
  const int64_t more_columns = ceil_div(columns, block.columns) * block.columns - columns;
  const bool fits = more_rows == 0 && more_columns == 0;
  const Tensor whole = fits ? matrix : at::constant_pad_nd(matrix, {0, more_columns, 0, more_rows});
  return whole.unflatten(-1, {-1, block.columns}).unflatten(-3, {-1, block.rows});
}

// [..., R', r, C', c] -> [..., R, C], contiguous.
Tensor from_blocks(const Tensor& blocks, int64_t rows, int64_t columns) {
  return blocks.flatten(-2).flatten(-3, -2).slice(-2, 0, rows).slice(-1, 0, columns).contiguous();
}

Tensor codes_of(const Tensor& scaled, BlockFormat format) {
  return format == BlockFormat::e4m3 ? e4m3_encode(scaled) : e2m1_codes(scaled);
}

Tensor values_of(const Tensor& codes, BlockFormat format) {
  return format == BlockFormat::e4m3 ? e4m3_decode(codes) : e2m1_values(codes);
}

void check_dtype(const Tensor& values) {
  if (values.scalar_type() == at::kFloat || values.scalar_type() == at::kBFloat16) return;
  fail(Code::invalid_argument, "block scales: the values are {}, they must be f32 or bf16",
       toString(values.scalar_type()));
}

// [..., R', r, C', c] -> [..., R', 1, C', 1].
Tensor amax_of_blocks(const Tensor& blocks) { return blocks.abs().amax({-3, -1}, /*keepdim=*/true); }

// Groups along the last dim, zeros beyond the edge: [..., C] -> [..., C', group].
Tensor to_groups(const Tensor& values, int64_t group) {
  const int64_t more = ceil_div(values.size(-1), group) * group - values.size(-1);
  return (more == 0 ? values : at::constant_pad_nd(values, {0, more})).unflatten(-1, {-1, group});
}

struct Groups {
  Tensor codes;  // [..., C', group], one a byte
  Tensor bytes;  // [..., C', 1]
};
Groups groups_of(const Tensor& values, int64_t group, BlockFormat format) {
  const Tensor groups = to_groups(values.to(at::kFloat), group);
  const Tensor amax = groups.abs().amax(-1, /*keepdim=*/true).clamp_min(kernels::cpu::activation_floor(format));
  const Tensor bytes = scale_bytes(amax, format);
  return {codes_of(groups * ue8m0_reciprocal(bytes), format), bytes};
}

}  // namespace

std::vector<int64_t> code_shape(const std::vector<int64_t>& shape, BlockFormat format) {
  check_matrix(shape, format);
  std::vector<int64_t> result = shape;
  if (format == BlockFormat::e2m1) result.back() /= 2;
  return result;
}

std::vector<int64_t> scale_shape(const std::vector<int64_t>& shape, BlockFormat format) {
  check_matrix(shape, format);
  const Block block = block_of(format);
  std::vector<int64_t> result = shape;
  result.back() = ceil_div(result.back(), block.columns);
  result[result.size() - 2] = ceil_div(result[result.size() - 2], block.rows);
  return result;
}

Quantised quantise_blocks(const Tensor& weight, BlockFormat format) {
  check_matrix(weight.sizes().vec(), format);
  check_dtype(weight);
  const at::NoGradGuard no_grad;
  const Tensor blocks = to_blocks(weight.to(at::kFloat), block_of(format));
  const Tensor amax = amax_of_blocks(blocks);
  const Tensor zero = amax == 0;
  const Tensor bytes = scale_bytes(amax, format).masked_fill_(zero, kernels::cpu::kZeroBlockByte);
  const Tensor scaled = (blocks * ue8m0_reciprocal(bytes)).masked_fill_(zero, 0);
  Tensor codes = from_blocks(codes_of(scaled, format), weight.size(-2), weight.size(-1));
  if (format == BlockFormat::e2m1) codes = e2m1_pack(codes);
  return {codes, bytes.squeeze(-1).squeeze(-2).contiguous(), format};
}

Tensor dequantise_blocks(const Quantised& quantised) {
  const auto& [codes, scales, format] = quantised;
  std::vector<int64_t> shape = codes.sizes().vec();
  if (format == BlockFormat::e2m1 && !shape.empty()) shape.back() *= 2;
  const std::vector<int64_t> wanted = scale_shape(shape, format);
  if (scales.sizes().vec() != wanted) {
    fail(Code::invalid_argument, "block scales: codes {} of a weight {} need scales {}, not {}",
         shape_text(codes.sizes().vec()), shape_text(shape), shape_text(wanted), shape_text(scales.sizes().vec()));
  }
  if (scales.scalar_type() != at::kByte && scales.scalar_type() != at::kFloat) {
    fail(Code::invalid_argument, "block scales: the scales are {}, they must be ue8m0 bytes or f32",
         toString(scales.scalar_type()));
  }
  const Tensor factors = scales.scalar_type() == at::kByte ? ue8m0_decode(scales) : scales;
  Tensor values = values_of(format == BlockFormat::e2m1 ? e2m1_unpack(codes) : codes, format);
  return values.mul_(spread_over_blocks(factors, format, shape[shape.size() - 2], shape.back()));
}

Quantised quantise_groups(const Tensor& values, int64_t group, BlockFormat format) {
  CHECK(group > 0 && values.dim() > 0);
  check_dtype(values);
  const at::NoGradGuard no_grad;
  const Groups groups = groups_of(values, group, format);
  Tensor codes = groups.codes.flatten(-2).slice(-1, 0, values.size(-1)).contiguous();
  if (format == BlockFormat::e2m1) codes = e2m1_pack(codes);
  return {codes, groups.bytes.squeeze(-1).contiguous(), format};
}

Tensor block_amax(const Tensor& weight, BlockFormat format) {
  check_matrix(weight.sizes().vec(), format);
  return amax_of_blocks(to_blocks(weight, block_of(format))).squeeze(-1).squeeze(-2);
}

Tensor spread_over_blocks(const Tensor& per_block, BlockFormat format, int64_t rows, int64_t columns) {
  const Block block = block_of(format);
  std::vector<int64_t> sizes = per_block.sizes().vec();
  sizes.insert(sizes.end() - 1, block.rows);
  sizes.push_back(block.columns);
  return from_blocks(per_block.unsqueeze(-1).unsqueeze(-3).expand(sizes), rows, columns);
}

Tensor simulate_groups(const Tensor& values, int64_t group, BlockFormat format) {
  CHECK(group > 0 && values.dim() > 0);
  const at::NoGradGuard no_grad;
  if (values.numel() == 0) return values.contiguous().clone();
  const Groups groups = groups_of(values, group, format);
  const Tensor result = values_of(groups.codes, format) * ue8m0_decode(groups.bytes);
  return result.flatten(-2).slice(-1, 0, values.size(-1)).contiguous().to(values.scalar_type());
}

}  // namespace tensor
