// ue8m0 by the bits of f32: the byte is the exponent field, except at its two ends.
#include "tensor/formats/ue8m0.h"

#include <bit>

namespace tensor {
namespace {
constexpr int32_t kSmallest = 0x00400000;  // 2^-127, a subnormal
constexpr int32_t kNan = 0x7fc00000;
}  // namespace

float ue8m0_to_float(uint8_t byte) {
  const int32_t bits = byte == 0 ? kSmallest : byte == 255 ? kNan : static_cast<int32_t>(byte) << 23;
  return std::bit_cast<float>(bits);
}

Tensor ue8m0_decode(const Tensor& bytes) {
  const Tensor wide = bytes.to(at::kInt);
  Tensor bits = at::bitwise_left_shift(wide, 23);
  bits.masked_fill_(wide == 0, kSmallest).masked_fill_(wide == 255, kNan);
  return bits.view(at::kFloat);
}

Tensor ue8m0_reciprocal(const Tensor& bytes) {
  const Tensor wide = bytes.to(at::kInt);
  return ue8m0_decode((254 - wide).masked_fill_(wide == 255, 255));
}

}  // namespace tensor
