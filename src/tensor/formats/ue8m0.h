// ue8m0: a power-of-two scale factor in one byte, e -> 2^(e - 127); 255 is NaN. Byte 0 is 2^-127, a subnormal f32: it
// decodes exactly where subnormals are not flushed to zero. Source: spec 6.1, decisions 19.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace tensor {

float ue8m0_to_float(uint8_t byte);

// uint8 of any shape and device -> f32.
Tensor ue8m0_decode(const Tensor& bytes);

// 1 / 2^(e - 127) as f32 for bytes 0..254, exact (2^-127 for byte 254 is subnormal); NaN for 255.
Tensor ue8m0_reciprocal(const Tensor& bytes);

}  // namespace tensor
