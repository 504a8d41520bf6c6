// The arithmetic that 8-bit floats share: a sign, an exponent field with a bias, a mantissa, and subnormals below the
// smallest normal. What their last codes mean (infinity, NaN, numbers) is each format's own.
#pragma once
#include <cstdint>

namespace tensor {

struct Float8 {
  int mantissa_bits;
  int bias;
  float max;  // the largest finite value
};

// The code of the value nearest to a magnitude that is not NaN, ties to the even code; max for all beyond it.
uint8_t nearest_magnitude(float magnitude, const Float8& format);

// The value of a code that is a number, sign bit clear.
float magnitude_of(uint8_t code, const Float8& format);

}  // namespace tensor
