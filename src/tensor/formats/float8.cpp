// Rounding to a grid by exact scaling.
#include "tensor/formats/float8.h"

#include <algorithm>
#include <cmath>

namespace tensor {

uint8_t nearest_magnitude(float magnitude, const Float8& format) {
  const float within = std::min(magnitude, format.max);
  // In units of the grid's step at this magnitude, which below the smallest normal stays that of the smallest normal.
  const int lowest = 1 - format.bias;
  const int exponent = std::max(within == 0 ? lowest : std::ilogb(within), lowest);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(within, format.mantissa_bits - exponent)));
  // Fewer steps than a normal's are a subnormal, exponent field 0; as many as two normals' carry into the next exponent
  // by themselves.
  return static_cast<uint8_t>(((exponent - lowest) << format.mantissa_bits) + steps);
}

float magnitude_of(uint8_t code, const Float8& format) {
  const int field = code >> format.mantissa_bits, mantissa = code & ((1 << format.mantissa_bits) - 1);
  const int exponent = std::max(field, 1) - format.bias - format.mantissa_bits;
  return std::ldexp(static_cast<float>(mantissa + (field == 0 ? 0 : 1 << format.mantissa_bits)), exponent);
}

}  // namespace tensor
