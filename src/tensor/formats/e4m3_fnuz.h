// e4m3 FNUZ: the 8-bit floats of gfx942 (MI300), "finite, NaN, unsigned zero": sign, 4 exponent bits with bias 8, 3
// mantissa bits; no infinities, no -0, and 0x80 is the only NaN. Largest 240 (0x7f), smallest normal 2^-7, smallest
// 2^-10. Source: spec 6.1; "8-bit numerical formats for deep neural networks" (Noune and others, 2022).
//
// The same bits mean half of what they mean in OCP's e4m3. So weights of a checkpoint become FNUZ by keeping the codes
// and doubling the scales, except two codes: -0 becomes 0, NaN becomes NaN.
#pragma once
#include <cstdint>

#include "tensor/formats/block_scale.h"
#include "tensor/tensor.h"

namespace tensor {

inline constexpr float kE4m3FnuzMax = 240.0f;

// One value on the host: nearest, ties to the even code, saturating at +-240 (infinities too); NaN is 0x80, -0 and
// negatives that round to zero are 0.
uint8_t e4m3_fnuz_from_float(float value);
float e4m3_fnuz_to_float(uint8_t code);

// The same on tensors of any shape and device. encode: f32 or bf16 -> uint8 codes. decode: uint8 codes -> f32.
Tensor e4m3_fnuz_encode(const Tensor& values);
Tensor e4m3_fnuz_decode(const Tensor& codes);

// OCP codes -> FNUZ codes of half the value: 0x80 -> 0, 0x7f and 0xff -> 0x80, all others as they are.
Tensor e4m3_to_fnuz(const Tensor& codes);

// Codes and scales of an e4m3 weight for FNUZ hardware: e4m3_fnuz_decode(codes) times the new scale is the value that
// it was, exactly. Always from OCP codes, as they arrive: applied twice it gives other values. A ue8m0 scale of 2^127
// (byte 254) can't be doubled and becomes NaN (255), as its block then is. Error{invalid_argument}: not e4m3.
struct FnuzWeight {
  Tensor codes;   // uint8, e4m3 FNUZ
  Tensor scales;  // as they were: uint8 ue8m0 or f32
};
FnuzWeight to_fnuz(const Quantised& quantised);

}  // namespace tensor
