// e2m1: 4-bit floats (sign, magnitude code 0..7 = 0, .5, 1, 1.5, 2, 3, 4, 6), packed two per byte along the last dim:
// the low nibble is the even element. Source: spec 6.1.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace tensor {

inline constexpr float kE2m1Max = 6.0f;

// One value on the host: nearest, ties to the even code, saturating at +-6; a negative that rounds to zero gives code 8
// (-0). The format has no NaN: the value must not be one.
uint8_t e2m1_from_float(float value);
float e2m1_to_float(uint8_t code);  // the low four bits count

// The same on tensors of any shape and device, one code per byte: f32 or bf16 -> uint8 codes 0..15 -> f32.
Tensor e2m1_codes(const Tensor& values);
Tensor e2m1_values(const Tensor& codes);

// Two codes per byte: uint8 [..., C] -> uint8 [..., C/2], and back. Error{invalid_argument} for an odd C: half a byte
// can't be stored.
Tensor e2m1_pack(const Tensor& codes);
Tensor e2m1_unpack(const Tensor& bytes);

}  // namespace tensor
