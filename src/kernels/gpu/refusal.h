// What launch functions say no with. The GPU compilers see these declarations alone: nvcc does not compile fmt 9.
#pragma once
#include <cstdint>

namespace kernels::gpu {

// As a CHECK: Error{internal} "what: a, b".
[[noreturn]] void refuse_sizes(const char* what, int64_t a, int64_t b);
inline void check_sizes(bool right, const char* what, int64_t a, int64_t b = 0) {
  if (!right) refuse_sizes(what, a, b);
}

// Error{unavailable}: the GPU does not take a kernel into its queue.
[[noreturn]] void refuse_kernel(const char* kernel, const char* why, const char* chips);

}  // namespace kernels::gpu
