// e5m2: 8-bit floats with the range of f16 (sign, 5 exponent bits with bias 15, 2 mantissa bits; 0x7c is infinity,
// 0x7d..0x7f are NaN). Largest 57344 (0x7b), smallest normal 2^-14, smallest 2^-16. For gradients, whose range is wide.
// Source: OCP 8-bit floating point specification, revision 1.0.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace tensor {

inline constexpr float kE5m2Max = 57344.0f;

// One value on the host: nearest, ties to the even code, saturating at +-57344 (infinities too); NaN stays NaN, -0
// stays -0. Infinity is decoded, never made.
uint8_t e5m2_from_float(float value);
float e5m2_to_float(uint8_t code);

// The same on tensors of any shape and device. encode: f32 or bf16 -> uint8 codes. decode: uint8 codes -> f32.
Tensor e5m2_encode(const Tensor& values);
Tensor e5m2_decode(const Tensor& codes);

}  // namespace tensor
