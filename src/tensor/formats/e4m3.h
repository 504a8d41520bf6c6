// e4m3: 8-bit floats as OCP "E4M3FN" (sign, 4 exponent bits with bias 7, 3 mantissa bits; no infinities; 0x7f and 0xff
// are NaN). Largest 448 (0x7e), smallest normal 2^-6, smallest 2^-9. Not the FNUZ variant of some AMD chips. Source:
// spec 6.1.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace tensor {

inline constexpr float kE4m3Max = 448.0f;

// One value on the host: nearest, ties to the even code, saturating at +-448 (infinities too); NaN stays NaN, -0 stays
// -0.
uint8_t e4m3_from_float(float value);
float e4m3_to_float(uint8_t code);

// The same on tensors of any shape and device. encode: f32 or bf16 -> uint8 codes. decode: uint8 codes -> f32.
Tensor e4m3_encode(const Tensor& values);
Tensor e4m3_decode(const Tensor& codes);

}  // namespace tensor
