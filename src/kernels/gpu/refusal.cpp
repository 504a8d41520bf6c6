// Errors of launch functions, compiled by the C++ compiler.
#include "kernels/gpu/refusal.h"

#include "base/error.h"

namespace kernels::gpu {

void refuse_sizes(const char* what, int64_t a, int64_t b) {
  base::fail(base::Code::internal, "GPU kernel: {}: {}, {}", what, a, b);
}

void refuse_kernel(const char* kernel, const char* why, const char* chips) {
  base::fail(base::Code::unavailable, "the GPU does not run the kernel {}: {}. This program has kernels for {}.",
             kernel, why, chips);
}

}  // namespace kernels::gpu
