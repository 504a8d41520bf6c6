// Which instruction sets the kernels are compiled for: the baseline, AVX2, AVX-512 and NEON. To be included before any
// header of Highway.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
