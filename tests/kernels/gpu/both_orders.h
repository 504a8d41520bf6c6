// For tests of GPU kernels on emulated lanes: running them with the lanes forwards and backwards, and comparing bits.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/each_target.h"
#include "kernels/gpu/device.h"

namespace test {

using Floats = std::vector<float>;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Body>
void in_both_orders(const Body& body) {
  bool& backwards = kernels::gpu::EmulatedBlock::current().backwards;
  for (const bool order : {false, true}) {
    SCOPED_TRACE(order ? "lanes backwards" : "lanes forwards");
    backwards = order;
    body();
  }
  backwards = false;
}

inline Floats unset(int64_t count) { return Floats(static_cast<size_t>(count), kNan); }

// The same bits; any NaN equals any other.
inline void expect_same(const Floats& values, const Floats& wanted, const char* what) {
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) && std::isnan(wanted[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(wanted[i]))
        << what << " [" << i << "]: " << values[i] << ", the CPU kernel has " << wanted[i];
  }
}

// CPU kernels that sum with fused multiply-adds, which the GPU kernels have to the bit; the baseline of x86 has none.
inline bool cpu_fuses() { return (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0; }

}  // namespace test

#define SKIP_WITHOUT_FMA() \
  if (!test::cpu_fuses()) GTEST_SKIP() << "this processor has no fused multiply-add: its CPU kernels give other bits"
