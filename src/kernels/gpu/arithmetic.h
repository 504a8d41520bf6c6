// Arithmetic of one value, as the CPU kernels do it, to the bit: roundings of kernels/cpu/round_inl.h, and the
// functions of Highway 1.0 (hwy/contrib/math/math-inl.h, Apache-2.0) that kernels/cpu calls. Given operations that are
// rounded once each, which the compilers' flags ask for (cmake/gpu_compile.cmake), every chip gives the same bits.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/cpu/scale_rule.h"
#include "kernels/gpu/device.h"

namespace kernels::gpu {

using cpu::BlockFormat;

GPU_FUNCTION int32_t bits_of(float x) { return std::bit_cast<int32_t>(x); }
GPU_FUNCTION float float_of(int32_t bits) { return std::bit_cast<float>(bits); }
GPU_FUNCTION bool is_nan(float x) { return x != x; }
GPU_FUNCTION float not_a_number() { return float_of(0x7fc00000); }
GPU_FUNCTION float infinity() { return float_of(0x7f800000); }
GPU_FUNCTION float magnitude(float x) { return float_of(bits_of(x) & 0x7fffffff); }
// 2^(byte - 127), for 0 to 254.
GPU_FUNCTION float power_of_two(int32_t byte) { return float_of(byte == 0 ? 0x00400000 : byte << 23); }

// The nearest bf16 value, ties to even, still as f32. NaN stays NaN.
GPU_FUNCTION float round_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = is_nan(x) ? bits | 0x00400000u : bits + 0x7fffu + (bits >> 16 & 1u);
  return std::bit_cast<float>(rounded & 0xffff0000u);
}
GPU_FUNCTION float round_if(bool bf16, float x) { return bf16 ? round_to_bf16(x) : x; }

// The nearest value of e4m3's or e2m1's grid, ties to even; -0 stays. For magnitudes far below 2^100.
GPU_FUNCTION float to_grid(float x, BlockFormat format) {
  const int32_t mantissa_bits = format == BlockFormat::e4m3 ? 3 : 1, least = format == BlockFormat::e4m3 ? -6 : 0;
  const int32_t exponent = std::max(bits_of(x) & 0x7f800000, (127 + least) << 23);
  const float shift = float_of((exponent + ((23 - mantissa_bits) << 23)) | 0x00400000);
  return float_of(bits_of((x + shift) - shift) | (bits_of(x) & static_cast<int32_t>(0x80000000u)));
}

// What the largest magnitude of a group of activations counts as, from the bits of its values' magnitudes.
GPU_FUNCTION int32_t with_floor(int32_t amax_bits, BlockFormat format) {
  return std::max(amax_bits, bits_of(cpu::activation_floor(format)));
}

// e^x for x <= 104; NaN stays NaN.
GPU_FUNCTION float exponential(float x) {
  if (!(x >= -104.0f)) return is_nan(x) ? x : 0.0f;
  const auto q = static_cast<int32_t>(fused(x, 1.442695040888963407f, x < 0 ? -0.5f : 0.5f));
  float r = fused(static_cast<float>(q), -0.693145751953125f, x);
  r = fused(static_cast<float>(q), -1.428606765330187045e-6f, r);
  const float r2 = r * r, r4 = r2 * r2;
  const float low = fused(r2, fused(0.00833336077630519866943359f, r, 0.0416664853692054748535156f),
                          fused(0.166666671633720397949219f, r, 0.5f));
  const float high = fused(0.000198527617612853646278381f, r, 0.00139304355252534151077271f);
  const float y = fused(fused(r4, high, low), r2, r) + 1.0f;
  const int32_t half = q >> 1;
  return y * float_of((half + 127) << 23) * float_of((q - half + 127) << 23);
}

// log(1 + x) for 0 <= x <= 1; NaN stays NaN.
GPU_FUNCTION float log_of_one_plus(float x) {
  const float y = x + 1.0f;
  if (y == 1.0f) return x;
  constexpr int32_t kMagic = 0x3f3504f3;  // sqrt(0.5)
  const int32_t moved = bits_of(y) + (0x3f800000 - kMagic);
  const auto exponent = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(moved) >> 23) - 127);
  const float m = float_of((moved & 0x7fffff) + kMagic), m1 = m - 1.0f, z = m1 / (m + 1.0f);
  const float z2 = z * z, z4 = z2 * z2;
  const float polynomial =
      fused(fused(0.28498786688f, z4, 0.66666662693f), z2, fused(0.24279078841f, z4, 0.40000972152f) * z4);
  const float tail = fused(z, m1 - polynomial, -(exponent * 9.0580006145e-6f)) - m1;
  return fused(exponent, 0.69313812256f, -tail) * (x / (y - 1.0f));
}

// The natural logarithm of a finite x >= 2^-126 in f64, rounded to f32: log m + e log 2 with m in [sqrt(1/2), sqrt(2)),
// log m = 2 artanh(s), s = (m - 1) / (m + 1). The series ends where s^24 / 25 < 2^-60 of its first term.
GPU_FUNCTION float logarithm(float x) {
  constexpr int32_t kMagic = 0x3f3504f3;
  const int32_t moved = bits_of(x) - kMagic;
  const double exponent = moved >> 23, m = float_of((moved & 0x7fffff) + kMagic);
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double series = 1.0 / 23;
  for (int n = 21; n > 0; n -= 2) series = fused(series, s2, 1.0 / n);
  return static_cast<float>(fused(exponent, 0.693147180559945309417, 2 * s * series));
}

// 1 / (1 + e^-x), as hyper-connections take it and as the router does: they differ in their last bits.
GPU_FUNCTION float gate_sigmoid(float x) {
  const float small = exponential(-magnitude(x));
  return (x >= 0 ? 1.0f : small) / (1.0f + small);
}
GPU_FUNCTION float router_sigmoid(float x) {
  const float e = exponential(-magnitude(x)), large = 1.0f / (1.0f + e);
  return x >= 0 ? large : e * large;
}

// sqrt(log(1 + e^x)).
GPU_FUNCTION float sqrt_softplus(float x) {
  const bool low = x < -30.0f;  // below it log1p(exp(x)) = exp(x) in f32
  const float e = exponential(low ? x * 0.5f : -magnitude(x));
  return low ? e : root(log_of_one_plus(e) + (x < 0 ? 0.0f : x));
}

}  // namespace kernels::gpu
